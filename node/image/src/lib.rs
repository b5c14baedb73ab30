//! From a registry or archive to unpacked layers and overlay snapshots.
