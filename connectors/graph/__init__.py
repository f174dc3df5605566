"""Draws execution graphs: Mermaid, Graphviz DOT, SVG. Pure functions, but for the layout, which has a process of its own.

What is drawn are types, the beginnings of ids, and states: everything else stays in the JSON.
"""
