//! The questions: clusters of a few nodes with pods on them, and a pod, all by chance.
//!
//! What upstream leaves to chance is not asked: no two pods of a node have the same priority and start, so that it is
//! certain who is spared first; an image has the same size everywhere.

use serde_json::{Map, Value, json};

use crate::dice::Dice;

const ZONES: [&str; 3] = ["a", "b", "c"];
const APPS: [&str; 3] = ["web", "db", "cache"];
const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";
const CLASSES: [&str; 3] = ["waits", "immediate", "local"];

/// Every question.
pub(crate) fn all() -> Vec<Value> {
    (0..1200).map(question).collect()
}

fn question(seed: usize) -> Value {
    let mut dice = Dice::new(u64::try_from(seed).unwrap() + 1);
    let mut cluster = Cluster { crowded: dice.one_in(2), volumes: dice.one_in(3), dice, objects: Vec::new() };
    let nodes = 1 + cluster.dice.below(8);
    for namespace in ["default", "other"] {
        let labels = if namespace == "other" { json!({"team": "x"}) } else { json!({}) };
        cluster.objects.push(
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}),
        );
    }
    (0..nodes).for_each(|at| cluster.node(at));
    if cluster.volumes {
        cluster.storage(nodes);
    }
    cluster.owners();
    let mut started = 0;
    for node in 0..nodes {
        for _ in 0..cluster.dice.below(if cluster.crowded { 7 } else { 4 }) {
            started += 1;
            cluster.placed(node, started);
        }
    }
    cluster.budgets();
    cluster.nominated(nodes);
    let mut pod = cluster.pod("new");
    if cluster.dice.one_in(12) {
        pod["spec"]["preemptionPolicy"] = json!("Never");
    }
    json!({"objects": cluster.objects, "pod": pod})
}

struct Cluster {
    dice: Dice,
    crowded: bool,
    volumes: bool,
    objects: Vec<Value>,
}

impl Cluster {
    fn node(&mut self, at: usize) {
        let dice = &mut self.dice;
        let mut labels = Map::new();
        labels.insert(HOSTNAME.into(), json!(format!("n{at}")));
        if !dice.one_in(6) {
            labels.insert(ZONE.into(), json!(dice.pick(&ZONES)));
        }
        if dice.one_in(2) {
            labels.insert("disk".into(), json!(dice.pick(&["ssd", "hdd"])));
        }
        if dice.one_in(2) {
            labels.insert("cores".into(), json!(dice.pick(&["4", "8", "16"])));
        }
        let mut taints = Vec::new();
        for effect in ["NoSchedule", "PreferNoSchedule", "PreferNoSchedule", "NoExecute"] {
            if dice.one_in(8) {
                taints.push(
                    json!({"key": dice.pick(&["k", "l"]), "value": dice.pick(&["1", "2"]), "effect": effect}),
                );
            }
        }
        let mut images = Vec::new();
        for (name, size) in [("big:1", 900_u64 << 20), ("small:1", 40 << 20), ("middle:latest", 300 << 20)] {
            if dice.one_in(2) {
                images.push(json!({"names": [name], "sizeBytes": size}));
            }
        }
        let mut allocatable = json!({
            "cpu": dice.pick(&["1", "2", "4", "3900m"]), "memory": dice.pick(&["2Gi", "4Gi", "8Gi", "3000Mi"]),
            "pods": dice.pick(&["3", "5", "110", "110"]), "ephemeral-storage": dice.pick(&["10Gi", "1Gi"]),
        });
        if dice.one_in(3) {
            allocatable["example.com/gpu"] = json!(dice.pick(&["1", "2", "4"]));
        }
        let mut spec = json!({"taints": taints});
        if dice.one_in(10) {
            spec["unschedulable"] = json!(true);
        }
        self.objects.push(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{at}"), "labels": labels},
            "spec": spec, "status": {"allocatable": allocatable, "capacity": allocatable, "images": images},
        }));
    }

    fn labels(&mut self) -> Value {
        let mut labels = Map::new();
        if !self.dice.one_in(5) {
            labels.insert("app".into(), json!(self.dice.pick(&APPS)));
        }
        if self.dice.one_in(3) {
            labels.insert("tier".into(), json!(self.dice.pick(&["front", "back"])));
        }
        Value::Object(labels)
    }

    fn selector(&mut self) -> Value {
        match self.dice.below(6) {
            0 => json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]}),
            1 => json!({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}),
            2 => json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]}),
            3 => json!({}),
            _ => json!({"matchLabels": {"app": self.dice.pick(&APPS)}}),
        }
    }

    fn term(&mut self) -> Value {
        let mut term = json!({"labelSelector": self.selector(), "topologyKey": self.dice.pick(&[HOSTNAME, ZONE, "disk"])});
        match self.dice.below(6) {
            0 => term["namespaces"] = json!(["other"]),
            1 => term["namespaceSelector"] = json!({"matchLabels": {"team": "x"}}),
            2 => term["namespaceSelector"] = json!({}),
            _ => {}
        }
        term
    }

    fn affinity(&mut self) -> Value {
        let mut affinity = Map::new();
        for (kind, often) in [("podAffinity", 6), ("podAntiAffinity", 4)] {
            let mut rules = Map::new();
            if self.dice.one_in(often) {
                let terms: Vec<_> = (0..=self.dice.below(2)).map(|_| self.term()).collect();
                rules.insert("requiredDuringSchedulingIgnoredDuringExecution".into(), terms.into());
            }
            if self.dice.one_in(often) {
                let terms: Vec<_> = (0..=self.dice.below(2))
                    .map(|_| json!({"weight": 1 + self.dice.below(100), "podAffinityTerm": self.term()}))
                    .collect();
                rules.insert("preferredDuringSchedulingIgnoredDuringExecution".into(), terms.into());
            }
            if !rules.is_empty() {
                affinity.insert(kind.into(), rules.into());
            }
        }
        Value::Object(affinity)
    }

    fn node_term(&mut self) -> Value {
        match self.dice.below(5) {
            0 => json!({"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["4"]}]}),
            1 => json!({"matchExpressions": [{"key": "disk", "operator": "DoesNotExist"}]}),
            2 => {
                json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [self.dice.pick(&["n0", "n1", "n9"])]}]})
            }
            3 => json!({"matchExpressions": [{"key": "disk", "operator": "NotIn", "values": ["hdd"]}]}),
            _ => {
                json!({"matchExpressions": [{"key": ZONE, "operator": "In", "values": [self.dice.pick(&ZONES), "a"]}]})
            }
        }
    }

    fn node_affinity(&mut self) -> Value {
        let mut rules = Map::new();
        if self.dice.one_in(4) {
            let terms: Vec<_> = (0..=self.dice.below(2)).map(|_| self.node_term()).collect();
            rules.insert(
                "requiredDuringSchedulingIgnoredDuringExecution".into(),
                json!({"nodeSelectorTerms": terms}),
            );
        }
        if self.dice.one_in(3) {
            let terms: Vec<_> = (0..=self.dice.below(2))
                .map(|_| json!({"weight": 1 + self.dice.below(100), "preference": self.node_term()}))
                .collect();
            rules.insert("preferredDuringSchedulingIgnoredDuringExecution".into(), terms.into());
        }
        Value::Object(rules)
    }

    fn spread(&mut self) -> Value {
        let count = if self.dice.one_in(3) { 1 + self.dice.below(2) } else { 0 };
        let mut seen = Vec::new();
        let mut all = Vec::new();
        for _ in 0..count {
            let key = self.dice.pick(&[HOSTNAME, ZONE, "disk"]);
            let action = self.dice.pick(&["DoNotSchedule", "ScheduleAnyway"]);
            if seen.contains(&(key, action)) {
                continue;
            }
            seen.push((key, action));
            let mut one = json!({
                "maxSkew": 1 + self.dice.below(3), "topologyKey": key, "whenUnsatisfiable": action,
                "labelSelector": self.selector(),
            });
            if action == "DoNotSchedule" && self.dice.one_in(4) {
                one["minDomains"] = json!(1 + self.dice.below(4));
            }
            if self.dice.one_in(3) {
                one["nodeAffinityPolicy"] = json!(self.dice.pick(&["Honor", "Ignore"]));
            }
            if self.dice.one_in(3) {
                one["nodeTaintsPolicy"] = json!(self.dice.pick(&["Honor", "Ignore"]));
            }
            if self.dice.one_in(4) {
                one["matchLabelKeys"] = json!(["tier"]);
            }
            all.push(one);
        }
        all.into()
    }

    fn containers(&mut self) -> Value {
        let mut resources = Map::new();
        let amounts: [(&str, &[&str], usize); 4] = [
            ("cpu", &["100m", "500m", "1", "1500m", "0"], 3),
            ("memory", &["64Mi", "512Mi", "1Gi", "3Gi"], 3),
            ("ephemeral-storage", &["100Mi", "2Gi"], 8),
            ("example.com/gpu", &["1", "2"], 10),
        ];
        for (name, amounts, often) in amounts {
            if if often == 3 { !self.dice.one_in(3) } else { self.dice.one_in(often) } {
                resources.insert(name.into(), json!(self.dice.pick(amounts)));
            }
        }
        let image = self.dice.pick(&["big:1", "small:1", "middle", "none:1"]);
        let mut container = json!({"name": "c", "image": image, "resources": {"requests": resources}});
        if self.dice.one_in(5) {
            container["ports"] = json!([{"containerPort": 80, "hostPort": self.dice.pick(&[80, 443]),
                "protocol": self.dice.pick(&["TCP", "UDP"]), "hostIP": self.dice.pick(&["", "127.0.0.1", "0.0.0.0"])}]);
        }
        let mut all = vec![container];
        if self.dice.one_in(4) {
            all.push(json!({"name": "d", "image": "small:1"}));
        }
        all.into()
    }

    fn tolerations(&mut self) -> Value {
        let mut all = Vec::new();
        if self.dice.one_in(3) {
            all.push(json!({"key": self.dice.pick(&["k", "l"]), "operator": "Exists"}));
        }
        if self.dice.one_in(4) {
            all.push(json!({"key": "k", "operator": "Equal", "value": "1", "effect": self.dice.pick(&["NoSchedule", "PreferNoSchedule"])}));
        }
        if self.dice.one_in(10) {
            all.push(json!({"operator": "Exists"}));
        }
        all.into()
    }

    fn volumes(&mut self) -> Value {
        let mut all = Vec::new();
        if self.volumes && self.dice.one_in(2) {
            let claim = self.dice.pick(&[
                "bound",
                "zoned",
                "waiting",
                "immediate",
                "local",
                "exclusive",
                "absent",
                "made",
            ]);
            all.push(json!({"name": "v", "persistentVolumeClaim": {"claimName": claim}}));
        }
        if self.dice.one_in(8) {
            let disk = json!({"pdName": self.dice.pick(&["one", "two"]), "readOnly": self.dice.one_in(2)});
            all.push(json!({"name": "w", "gcePersistentDisk": disk}));
        }
        all.into()
    }

    fn pod(&mut self, name: &str) -> Value {
        let mut affinity = self.affinity();
        let of_nodes = self.node_affinity();
        if of_nodes.as_object().is_some_and(|rules| !rules.is_empty()) {
            affinity["nodeAffinity"] = of_nodes;
        }
        let mut spec = json!({
            "schedulerName": "default-scheduler", "containers": self.containers(), "affinity": affinity,
            "tolerations": self.tolerations(), "topologySpreadConstraints": self.spread(), "volumes": self.volumes(),
            "priority": self.dice.pick(&[0, 5, 10, 10, 100]),
        });
        if self.dice.one_in(6) {
            spec["nodeSelector"] = json!({"disk": "ssd"});
        }
        let mut meta = json!({"name": name, "namespace": "default", "uid": name, "labels": self.labels()});
        if self.dice.one_in(3) {
            let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "set", "uid": "set", "controller": true});
            meta["ownerReferences"] = json!([owner]);
        }
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {}})
    }

    fn placed(&mut self, node: usize, started: usize) {
        let mut pod = self.pod(&format!("p{started}"));
        pod["spec"]["nodeName"] = json!(format!("n{node}"));
        pod["spec"]["priority"] = json!(self.dice.pick(&[-5, 0, 1, 5, 10, 200]));
        pod["status"]["startTime"] = json!(format!("2026-01-01T{:02}:{:02}:00Z", started / 60, started % 60));
        if self.dice.one_in(4) {
            pod["metadata"]["namespace"] = json!("other");
        }
        if !self.dice.one_in(4) {
            pod["spec"]["affinity"] = json!({});
        }
        if self.dice.one_in(12) {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
            pod["metadata"]["finalizers"] = json!(["example.com/x"]);
        }
        self.objects.push(pod);
    }

    fn owners(&mut self) {
        if self.dice.one_in(2) {
            self.objects.push(json!({"apiVersion": "v1", "kind": "Service", "metadata":
                {"name": "svc", "namespace": "default"}, "spec": {"selector": {"app": "web"}}}));
        }
        if self.dice.one_in(2) {
            self.objects.push(json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata":
                {"name": "set", "namespace": "default"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}}));
        }
    }

    fn budgets(&mut self) {
        for at in 0..self.dice.below(3) {
            let mut status = json!({"disruptionsAllowed": self.dice.below(3), "currentHealthy": 1, "desiredHealthy": 1,
                "expectedPods": 1});
            if self.dice.one_in(3) {
                status["disruptedPods"] = json!({"p1": "2026-01-01T00:00:00Z"});
            }
            let selector = self.selector();
            self.objects.push(json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata":
                {"name": format!("b{at}"), "namespace": "default"}, "spec": {"selector": selector}, "status": status}));
        }
    }

    fn nominated(&mut self, nodes: usize) {
        if self.dice.one_in(5) {
            let mut pod = self.pod("promised");
            pod["status"]["nominatedNodeName"] = json!(format!("n{}", self.dice.below(nodes)));
            pod["spec"]["volumes"] = json!([]);
            self.objects.push(pod);
        }
    }

    fn storage(&mut self, nodes: usize) {
        for (name, provisioner, mode) in [
            (CLASSES[0], "csi.example.com", "WaitForFirstConsumer"),
            (CLASSES[1], "csi.example.com", "Immediate"),
            (CLASSES[2], "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
        ] {
            let mut class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
                "provisioner": provisioner, "volumeBindingMode": mode});
            if self.dice.one_in(3) {
                class["allowedTopologies"] =
                    json!([{"matchLabelExpressions": [{"key": ZONE, "values": ["a", "b"]}]}]);
            }
            self.objects.push(class);
        }
        for (name, class) in
            [("zoned", ""), ("bound", ""), ("l1", "local"), ("l2", "local"), ("exclusive", "")]
        {
            let bound = class.is_empty();
            let mut labels = json!({});
            if name == "zoned" {
                labels[ZONE] = json!(self.dice.pick(&["a", "b", "a__b"]));
            }
            let mut volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name, "labels": labels},
                "spec": {"capacity": {"storage": self.dice.pick(&["1Gi", "5Gi"])}, "accessModes": ["ReadWriteOnce"],
                    "storageClassName": class, "csi": {"driver": "csi.example.com", "volumeHandle": name}},
                "status": {"phase": if bound { "Bound" } else { "Available" }}});
            if self.dice.one_in(2) {
                volume["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [{"matchExpressions":
                    [{"key": HOSTNAME, "operator": "In", "values": ["n0", "n1"]}]}]}});
            }
            if bound {
                volume["spec"]["claimRef"] = json!({"namespace": "default", "name": name, "uid": name});
            }
            if !(name == "bound" && self.dice.one_in(5)) {
                self.objects.push(volume);
            }
        }
        for (name, class, volume) in [
            ("bound", "", "bound"),
            ("zoned", "", "zoned"),
            ("exclusive", "", "exclusive"),
            ("waiting", "waits", ""),
            ("made", "waits", ""),
            ("immediate", "immediate", ""),
            ("local", "local", ""),
        ] {
            let mode = if name == "exclusive" { "ReadWriteOncePod" } else { "ReadWriteOnce" };
            let mut claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "namespace": "default", "uid": name, "annotations": {}},
                "spec": {"accessModes": [mode], "storageClassName": class, "volumeName": volume,
                    "resources": {"requests": {"storage": self.dice.pick(&["1Gi", "2Gi"])}}}, "status": {}});
            if !volume.is_empty() {
                claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = json!("yes");
            }
            if name == "made" {
                claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] = json!("n0");
            }
            self.objects.push(claim);
        }
        for at in 0..nodes {
            let count = self.dice.pick(&[1, 1, 2, 9]);
            let driver = json!({"name": "csi.example.com", "nodeID": format!("n{at}"), "allocatable": {"count": count}});
            self.objects.push(json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata":
                {"name": format!("n{at}")}, "spec": {"drivers": [driver]}}));
        }
    }
}
