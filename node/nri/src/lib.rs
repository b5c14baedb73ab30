//! NRI, both sides: the runtime's adaptation and the plugin's stub.
