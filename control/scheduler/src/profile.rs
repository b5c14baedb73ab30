//! A profile: the plugins that decide for pods with one scheduler name, in their order, with their weights.

use std::sync::Arc;

use crate::cluster::{Cluster, Constraints};
use crate::framework::{Name, Plugin};
use crate::plugins::default_binder::DefaultBinder;
use crate::plugins::default_preemption::DefaultPreemption;
use crate::plugins::dynamic_resources::DynamicResources;
use crate::plugins::image_locality::ImageLocality;
use crate::plugins::inter_pod_affinity::InterPodAffinity;
use crate::plugins::node_affinity::NodeAffinity;
use crate::plugins::node_name::NodeName;
use crate::plugins::node_ports::NodePorts;
use crate::plugins::node_resources_balanced_allocation::NodeResourcesBalancedAllocation;
use crate::plugins::node_resources_fit::NodeResourcesFit;
use crate::plugins::node_unschedulable::NodeUnschedulable;
use crate::plugins::node_volume_limits::NodeVolumeLimits;
use crate::plugins::pod_topology_spread::PodTopologySpread;
use crate::plugins::scheduling_gates::SchedulingGates;
use crate::plugins::taint_toleration::TaintToleration;
use crate::plugins::volume_binding::VolumeBinding;
use crate::plugins::volume_restrictions::VolumeRestrictions;
use crate::plugins::volume_zone::VolumeZone;
use crate::pod::PodInfo;

/// At which points a plugin takes part, and what its score weighs.
#[derive(Clone)]
pub(crate) struct Row {
    pub(crate) plugin: Arc<dyn Plugin>,
    pub(crate) weight: i64,
    /// Whether it filters; a configuration can turn off filters and scores one by one.
    pub(crate) filters: bool,
    pub(crate) scores: bool,
}

/// What plugins are told by a configuration.
#[derive(Default)]
pub(crate) struct Arguments {
    pub(crate) fit: NodeResourcesFit,
    pub(crate) balance: NodeResourcesBalancedAllocation,
    pub(crate) affinity: NodeAffinity,
    pub(crate) spread: PodTopologySpread,
    pub(crate) neighbours: InterPodAffinity,
    pub(crate) preemption: DefaultPreemption,
    pub(crate) volumes: VolumeBinding,
    pub(crate) devices: DynamicResources,
}

/// The plugins for pods of one scheduler name.
#[derive(Clone)]
pub(crate) struct Profile {
    pub(crate) scheduler_name: String,
    pub(crate) rows: Vec<Row>,
    spread: Arc<PodTopologySpread>,
    /// How many of the nodes that fit are enough, in percent; `None` adapts to their number.
    pub(crate) percentage: Option<usize>,
}

impl Profile {
    /// Upstream's default plugins.
    pub(crate) fn default_for(scheduler_name: &str) -> Self {
        Self::new(scheduler_name, Arguments::default())
    }

    /// Upstream's default plugins with other arguments.
    pub(crate) fn new(scheduler_name: &str, arguments: Arguments) -> Self {
        let spread = Arc::new(arguments.spread);
        let row = |plugin: Arc<dyn Plugin>, weight| Row { plugin, weight, filters: true, scores: true };
        let rows = vec![
            row(Arc::new(SchedulingGates), 0),
            row(Arc::new(NodeUnschedulable), 0),
            row(Arc::new(NodeName), 0),
            row(Arc::new(TaintToleration), 3),
            row(Arc::new(arguments.affinity), 2),
            row(Arc::new(NodePorts), 0),
            row(Arc::new(arguments.fit), 1),
            row(Arc::new(VolumeRestrictions), 0),
            row(Arc::new(NodeVolumeLimits), 0),
            row(Arc::new(arguments.volumes), 1),
            row(Arc::new(VolumeZone), 0),
            row(spread.clone(), 2),
            row(Arc::new(arguments.neighbours), 2),
            row(Arc::new(arguments.devices), 2),
            row(Arc::new(arguments.preemption), 0),
            row(Arc::new(arguments.balance), 1),
            row(Arc::new(ImageLocality), 1),
            row(Arc::new(DefaultBinder), 0),
        ];
        Self { scheduler_name: scheduler_name.to_owned(), rows, spread, percentage: None }
    }

    /// How a pod is to be spread.
    pub(crate) fn constraints(&self, pod: &PodInfo, cluster: &Cluster) -> Constraints {
        let enabled = self.rows.iter().any(|row| row.plugin.name() == Name::PodTopologySpread);
        if enabled { self.spread.constraints(pod, cluster) } else { Constraints::default() }
    }

    /// The plugins, in order.
    pub(crate) fn plugins(&self) -> impl Iterator<Item = &dyn Plugin> {
        self.rows.iter().map(|row| &*row.plugin)
    }

    /// A plugin by name.
    pub(crate) fn plugin(&self, name: Name) -> Option<&dyn Plugin> {
        self.plugins().find(|plugin| plugin.name() == name)
    }
}
