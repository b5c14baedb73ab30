//! rtnetlink: links, addresses, routes, neighbours, traffic control.
