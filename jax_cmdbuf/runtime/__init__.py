"""One execution: which allocations are persistent, what the execution sees, which commands are updated."""
