//! PodNetwork (`net.podwire.dev/v1alpha1`): routes, rules, neighbours, settings and a mesh's redirection in a pod's own
//! network namespace, named by the pod's annotation or choosing the pod by its labels.
//!
//! `spec` reads the object and names what is wrong with it, `plan` decides the steps from that and from what the pod has,
//! `mesh` the rules of the redirection, `apply` carries steps out and takes them back, `attach` does all that for a pod
//! inside RunPodSandbox, `chosen` knows those that choose pods, and `status` tells what became of it.

pub mod apply;
pub(crate) mod attach;
pub(crate) mod chosen;
pub mod mesh;
pub mod plan;
pub mod spec;
pub(crate) mod status;

/// The annotation by which a pod names the PodNetwork of its namespace that it wants.
pub const ANNOTATION: &str = "net.podwire.dev/pod-network";
/// The table in a pod's namespace that redirects its traffic.
pub const MESH_TABLE: &str = "podwire_mesh";
