"""Every row of design 02's recovery table and its refusals, end to end: HTTP, roles as processes, a real broker."""
