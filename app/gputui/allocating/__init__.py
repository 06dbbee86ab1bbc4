"""From a request to devices held for it: rules, claims, the queue, and the allocation itself."""
