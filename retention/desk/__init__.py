"""The review desk: queue, item and consequences in one page, for whoever decides about memory.

A queue is a module here that reads what waits from the doors of its owner, and acts through them. Who holds an item
(`claims`) sees in clear what the decision is about, and what is above that by a reveal (`reveals`).
"""
