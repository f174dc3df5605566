"""Views of the log that may be deleted at any time: each is a fold over events, kept in the store of its partition."""
