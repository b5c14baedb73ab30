//! CNI: the runtime side, IPAM and the plugins as a library.
