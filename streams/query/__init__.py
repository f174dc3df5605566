"""Reads of views: questions, answers, and waiting until a view is far enough to answer."""
