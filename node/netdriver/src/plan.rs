//! What the driver decides, from values to values: no clock, no I/O.
//!
//! `devices` is what the node offers, `slices` how that is published, `configuration` what a claim asks for, `claim` what is
//! to be done for one, `inside` what a device becomes in its pod, `cdi` how its files reach containers, `status` what is told.

pub(crate) mod cdi;
pub(crate) mod claim;
pub(crate) mod configuration;
pub(crate) mod devices;
pub(crate) mod health;
pub(crate) mod inside;
pub(crate) mod slices;
pub(crate) mod status;

/// The domain of attributes, whatever the driver is called: selectors name it.
pub(crate) const DOMAIN: &str = "dra.net";
