//! The definitions against bytes: what upstream's numbers and types give for a value is what ours give, both ways.
//!
//! The bytes were made once by an encoder that knows nothing but upstream's published definitions (Kubernetes 1.36.3,
//! etcd 3.6.13); a number or a type that is wrong here cannot agree with them.
#![allow(clippy::unwrap_used)]

use std::fmt::Debug;

use bytes::Bytes;
use podwire_wire::{
    device_plugin, dra_health, dra_v1, dra_v1beta1, etcd, plugin_registration, pod_resources,
};
use prost::Message;

/// Writes the value and reads the bytes; both must be the other.
#[track_caller]
fn both_ways<M: Message + Default + PartialEq + Debug>(value: M, hex: &str) {
    let bytes: Vec<u8> =
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
    assert_eq!(value.encode_to_vec(), bytes);
    assert_eq!(M::decode(bytes.as_slice()).unwrap(), value);
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|&word| word.to_owned()).collect()
}

#[test]
fn services_have_the_names_that_peers_dial() {
    let names = [
        (plugin_registration::registration_server::SERVICE_NAME, "pluginregistration.Registration"),
        (dra_v1::dra_plugin_server::SERVICE_NAME, "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"),
        (dra_v1beta1::dra_plugin_server::SERVICE_NAME, "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin"),
        (dra_health::dra_resource_health_server::SERVICE_NAME, "v1alpha1.DRAResourceHealth"),
        (device_plugin::registration_server::SERVICE_NAME, "v1beta1.Registration"),
        (device_plugin::device_plugin_server::SERVICE_NAME, "v1beta1.DevicePlugin"),
        (pod_resources::pod_resources_lister_server::SERVICE_NAME, "v1.PodResourcesLister"),
        (etcd::kv_server::SERVICE_NAME, "etcdserverpb.KV"),
        (etcd::watch_server::SERVICE_NAME, "etcdserverpb.Watch"),
        (etcd::lease_server::SERVICE_NAME, "etcdserverpb.Lease"),
        (etcd::auth_server::SERVICE_NAME, "etcdserverpb.Auth"),
        (etcd::cluster_server::SERVICE_NAME, "etcdserverpb.Cluster"),
        (etcd::maintenance_server::SERVICE_NAME, "etcdserverpb.Maintenance"),
    ];
    for (ours, wire) in names {
        assert_eq!(ours, wire);
    }
}

#[test]
fn plugin_registration_is_upstreams_on_the_wire() {
    both_ways(
        plugin_registration::PluginInfo {
            r#type: "DRAPlugin".to_owned(),
            name: "dra.net".to_owned(),
            endpoint: "/p/dra.sock".to_owned(),
            supported_versions: words(&["v1.DRAPlugin", "v1beta1.DRAPlugin"]),
        },
        "0a09445241506c7567696e12076472612e6e65741a0b2f702f6472612e736f636b220c76312e445241506c7567696e\
         2211763162657461312e445241506c7567696e",
    );
    both_ways(
        plugin_registration::RegistrationStatus { plugin_registered: true, error: "no".to_owned() },
        "080112026e6f",
    );
}

#[test]
fn dra_is_upstreams_on_the_wire() {
    use dra_v1::{
        Claim, Device, NodePrepareResourceResponse, NodePrepareResourcesRequest,
        NodePrepareResourcesResponse, NodeUnprepareResourceResponse, NodeUnprepareResourcesResponse,
    };
    let claim = Claim { namespace: "default".to_owned(), uid: "u-1".to_owned(), name: "nic".to_owned() };
    both_ways(
        NodePrepareResourcesRequest { claims: vec![claim] },
        "0a130a0764656661756c741203752d311a036e6963",
    );
    let device = Device {
        request_names: words(&["nic"]),
        pool_name: "node".to_owned(),
        device_name: "eth1".to_owned(),
        cdi_device_ids: words(&["a/b=c"]),
        share_id: Some("s".to_owned()),
    };
    let answer = NodePrepareResourceResponse { devices: vec![device], error: "e".to_owned() };
    both_ways(
        NodePrepareResourcesResponse { claims: [("u-1".to_owned(), answer)].into() },
        "0a270a03752d3112200a1b0a036e696312046e6f64651a04657468312205612f623d632a0173120165",
    );
    let answer = NodeUnprepareResourceResponse { error: "busy".to_owned() };
    both_ways(
        NodeUnprepareResourcesResponse { claims: [("u-1".to_owned(), answer)].into() },
        "0a0d0a03752d3112060a0462757379",
    );
}

#[test]
fn dra_v1beta1_is_v1_without_shares() {
    use dra_v1beta1::{Device, NodePrepareResourceResponse, NodePrepareResourcesResponse};
    let device = Device {
        request_names: words(&["nic"]),
        pool_name: "node".to_owned(),
        device_name: "eth1".to_owned(),
        cdi_device_ids: words(&["a/b=c"]),
    };
    let answer = NodePrepareResourceResponse { devices: vec![device], error: "e".to_owned() };
    both_ways(
        NodePrepareResourcesResponse { claims: [("u-1".to_owned(), answer)].into() },
        "0a240a03752d31121d0a180a036e696312046e6f64651a04657468312205612f623d63120165",
    );
}

#[test]
fn health_of_devices_is_upstreams_on_the_wire() {
    use dra_health::{DeviceHealth, DeviceIdentifier, HealthStatus, NodeWatchResourcesResponse};
    let device = DeviceIdentifier { pool_name: "node".to_owned(), device_name: "eth1".to_owned() };
    let health = DeviceHealth {
        device: Some(device),
        health: HealthStatus::Unhealthy.into(),
        last_updated_time: 1_700_000_000,
        health_check_timeout_seconds: 30,
        message: "no carrier".to_owned(),
    };
    both_ways(
        NodeWatchResourcesResponse { devices: vec![health] },
        "0a240a0c0a046e6f646512046574683110021880e2cfaa06201e2a0a6e6f2063617272696572",
    );
}

#[test]
fn device_plugins_register_and_list_as_upstream_does() {
    use device_plugin::{
        Device, DevicePluginOptions, ListAndWatchResponse, NumaNode, RegisterRequest, TopologyInfo,
    };
    let options = DevicePluginOptions { pre_start_required: true, get_preferred_allocation_available: true };
    both_ways(
        RegisterRequest {
            version: "v1beta1".to_owned(),
            endpoint: "nic.sock".to_owned(),
            resource_name: "example.com/nic".to_owned(),
            options: Some(options),
        },
        "0a077631626574613112086e69632e736f636b1a0f6578616d706c652e636f6d2f6e6963220408011001",
    );
    let topology = TopologyInfo { nodes: vec![NumaNode { id: 1 }] };
    let device = Device { id: "eth1".to_owned(), health: "Healthy".to_owned(), topology: Some(topology) };
    both_ways(
        ListAndWatchResponse { devices: vec![device] },
        "0a150a046574683112074865616c7468791a040a020801",
    );
}

#[test]
fn device_plugins_allocate_as_upstream_does() {
    use device_plugin::{
        AllocateRequest, AllocateResponse, CdiDevice, ContainerAllocateRequest, ContainerAllocateResponse,
        ContainerPreferredAllocationRequest, ContainerPreferredAllocationResponse, DeviceSpec, Mount,
        PreferredAllocationRequest, PreferredAllocationResponse,
    };
    let wish = ContainerPreferredAllocationRequest {
        available_device_ids: words(&["a", "b"]),
        must_include_device_ids: words(&["b"]),
        allocation_size: 1,
    };
    both_ways(PreferredAllocationRequest { container_requests: vec![wish] }, "0a0b0a01610a01621201621801");
    let hint = ContainerPreferredAllocationResponse { device_ids: words(&["b"]) };
    both_ways(PreferredAllocationResponse { container_responses: vec![hint] }, "0a030a0162");
    let one = ContainerAllocateRequest { devices_ids: words(&["eth1"]) };
    both_ways(AllocateRequest { container_requests: vec![one] }, "0a060a0465746831");
    let mount = Mount { container_path: "/c".to_owned(), host_path: "/h".to_owned(), read_only: true };
    let device = DeviceSpec {
        container_path: "/dev/c".to_owned(),
        host_path: "/dev/h".to_owned(),
        permissions: "rw".to_owned(),
    };
    let answer = ContainerAllocateResponse {
        envs: [("NIC".to_owned(), "eth1".to_owned())].into(),
        mounts: vec![mount],
        devices: vec![device],
        annotations: [("k".to_owned(), "v".to_owned())].into(),
        cdi_devices: vec![CdiDevice { name: "a/b=c".to_owned() }],
    };
    both_ways(
        AllocateResponse { container_responses: vec![answer] },
        "0a400a0b0a034e4943120465746831120a0a022f6312022f6818011a140a062f6465762f6312062f6465762f681a0272\
         7722060a016b1201762a070a05612f623d63",
    );
}

#[test]
fn pod_resources_are_upstreams_on_the_wire() {
    use pod_resources::{
        AllocatableResourcesResponse, CdiDevice, ClaimResource, ContainerDevices, ContainerMemory,
        ContainerResources, DynamicResource, GetPodResourcesRequest, ListPodResourcesResponse, NumaNode,
        PodResources, TopologyInfo,
    };
    let topology = Some(TopologyInfo { nodes: vec![NumaNode { id: 1 }] });
    let devices = ContainerDevices {
        resource_name: "example.com/nic".to_owned(),
        device_ids: words(&["eth1"]),
        topology: topology.clone(),
    };
    let claim = ClaimResource {
        cdi_devices: vec![CdiDevice { name: "a/b=c".to_owned() }],
        driver_name: "dra.net".to_owned(),
        pool_name: "node".to_owned(),
        device_name: "eth1".to_owned(),
        share_id: Some("s".to_owned()),
    };
    let container = ContainerResources {
        name: "main".to_owned(),
        devices: vec![devices.clone()],
        cpu_ids: vec![2, 3],
        memory: vec![ContainerMemory { memory_type: "memory".to_owned(), size: 4096, topology }],
        dynamic_resources: vec![DynamicResource {
            claim_name: "nic".to_owned(),
            claim_namespace: "default".to_owned(),
            claim_resources: vec![claim],
        }],
    };
    let pod =
        PodResources { name: "web".to_owned(), namespace: "default".to_owned(), containers: vec![container] };
    both_ways(
        ListPodResourcesResponse { pod_resources: vec![pod] },
        "0a7f0a03776562120764656661756c741a6f0a046d61696e121d0a0f6578616d706c652e636f6d2f6e69631204657468\
         311a040a0208011a02020322110a066d656d6f72791080201a040a0208012a3112036e69631a0764656661756c742221\
         0a070a05612f623d6312076472612e6e65741a046e6f64652204657468312a0173",
    );
    let memory = ContainerMemory { memory_type: "hugepages-2Mi".to_owned(), size: 2_097_152, topology: None };
    both_ways(
        AllocatableResourcesResponse {
            devices: vec![ContainerDevices { topology: None, ..devices }],
            cpu_ids: vec![0, 300],
            memory: vec![memory],
        },
        "0a170a0f6578616d706c652e636f6d2f6e6963120465746831120300ac021a140a0d6875676570616765732d324d6910\
         80808001",
    );
    both_ways(
        GetPodResourcesRequest { pod_name: "web".to_owned(), pod_namespace: "default".to_owned() },
        "0a03776562120764656661756c74",
    );
}

/// A header with the largest number that a field can hold.
fn header() -> Option<etcd::ResponseHeader> {
    Some(etcd::ResponseHeader { cluster_id: u64::MAX, member_id: 7, revision: 42, raft_term: 3 })
}

fn pair() -> etcd::KeyValue {
    etcd::KeyValue {
        key: "/registry/a".into(),
        create_revision: 5,
        mod_revision: 42,
        version: 2,
        value: Bytes::from_static(b"\0k8s"),
        lease: 9,
    }
}

#[test]
fn etcd_ranges_are_upstreams_on_the_wire() {
    use etcd::range_request::{SortOrder, SortTarget};
    both_ways(
        etcd::RangeRequest {
            key: "/registry/".into(),
            range_end: "/registry0".into(),
            limit: 500,
            revision: 40,
            sort_order: SortOrder::Ascend.into(),
            sort_target: SortTarget::Mod.into(),
            serializable: true,
            keys_only: true,
            count_only: true,
            min_mod_revision: 1,
            max_mod_revision: 2,
            min_create_revision: 3,
            max_create_revision: 4,
        },
        "0a0a2f72656769737472792f120a2f72656769737472793018f4032028280130033801400148015001580260036804",
    );
    both_ways(
        etcd::RangeResponse { header: header(), kvs: vec![pair()], more: true, count: 900 },
        "0a1108ffffffffffffffffff011007182a2003121b0a0b2f72656769737472792f611005182a20022a04006b38733009\
         1801208407",
    );
    both_ways(
        etcd::DeleteRangeRequest { key: "a".into(), range_end: "b".into(), prev_kv: true },
        "0a01611201621801",
    );
    both_ways(etcd::CompactionRequest { revision: 40, physical: true }, "08281001");
}

#[test]
fn etcd_transactions_are_upstreams_on_the_wire() {
    use etcd::compare::{CompareResult, CompareTarget, TargetUnion};
    use etcd::{Compare, PutRequest, RangeRequest, RequestOp, ResponseOp, request_op, response_op};
    let unchanged = Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Mod.into(),
        key: "/registry/a".into(),
        target_union: Some(TargetUnion::ModRevision(41)),
        range_end: Bytes::new(),
    };
    let put = PutRequest {
        key: "/registry/a".into(),
        value: Bytes::from_static(b"\0k8s"),
        lease: 9,
        prev_kv: true,
        ..PutRequest::default()
    };
    let get = RangeRequest { key: "/registry/a".into(), ..RangeRequest::default() };
    both_ways(
        etcd::TxnRequest {
            compare: vec![unchanged],
            success: vec![RequestOp { request: Some(request_op::Request::RequestPut(put)) }],
            failure: vec![RequestOp { request: Some(request_op::Request::RequestRange(get)) }],
        },
        "0a1110021a0b2f72656769737472792f613029121912170a0b2f72656769737472792f611204006b3873180920011a0f\
         0a0d0a0b2f72656769737472792f61",
    );
    // The end of a range has a number of its own, far behind the others.
    both_ways(
        Compare {
            result: CompareResult::NotEqual.into(),
            target: CompareTarget::Lease.into(),
            key: "a".into(),
            target_union: Some(TargetUnion::Lease(-1)),
            range_end: "b".into(),
        },
        "080310041a016140ffffffffffffffffff0182040162",
    );
    let done = etcd::PutResponse {
        header: Some(etcd::ResponseHeader { revision: 42, ..etcd::ResponseHeader::default() }),
        prev_kv: Some(pair()),
    };
    both_ways(
        etcd::TxnResponse {
            header: header(),
            succeeded: true,
            responses: vec![ResponseOp { response: Some(response_op::Response::ResponsePut(done)) }],
        },
        "0a1108ffffffffffffffffff011007182a200310011a2312210a02182a121b0a0b2f72656769737472792f611005182a\
         20022a04006b38733009",
    );
}

#[test]
fn etcd_watches_are_upstreams_on_the_wire() {
    use etcd::watch_request::RequestUnion;
    use etcd::{Event, KeyValue, WatchRequest, WatchResponse};
    let begin = etcd::WatchCreateRequest {
        key: "/registry/".into(),
        range_end: "/registry0".into(),
        start_revision: 43,
        progress_notify: true,
        filters: vec![etcd::watch_create_request::FilterType::Nodelete.into()],
        prev_kv: true,
        watch_id: 1,
        fragment: true,
    };
    both_ways(
        WatchRequest { request_union: Some(RequestUnion::CreateRequest(begin)) },
        "0a250a0a2f72656769737472792f120a2f726567697374727930182b20012a0101300138014001",
    );
    let progress = RequestUnion::ProgressRequest(etcd::WatchProgressRequest {});
    both_ways(WatchRequest { request_union: Some(progress) }, "1a00");
    let gone = Event {
        r#type: etcd::event::EventType::Delete.into(),
        kv: Some(KeyValue { key: "/registry/a".into(), mod_revision: 43, ..KeyValue::default() }),
        prev_kv: Some(pair()),
    };
    both_ways(
        WatchResponse { header: header(), watch_id: -1, events: vec![gone], ..WatchResponse::default() },
        "0a1108ffffffffffffffffff011007182a200310ffffffffffffffffff015a300801120f0a0b2f72656769737472792f\
         61182b1a1b0a0b2f72656769737472792f611005182a20022a04006b38733009",
    );
    both_ways(
        WatchResponse {
            watch_id: 1,
            canceled: true,
            compact_revision: 50,
            cancel_reason: "compacted".to_owned(),
            ..WatchResponse::default()
        },
        "1001200128323209636f6d706163746564",
    );
}

#[test]
fn etcd_leases_and_passwords_are_upstreams_on_the_wire() {
    both_ways(etcd::LeaseGrantRequest { ttl: 3660, id: 9 }, "08cc1c1009");
    both_ways(
        etcd::LeaseTimeToLiveResponse {
            header: header(),
            id: 9,
            ttl: -1,
            granted_ttl: 3660,
            keys: vec!["/registry/a".into()],
        },
        "0a1108ffffffffffffffffff011007182a2003100918ffffffffffffffffff0120cc1c2a0b2f72656769737472792f61",
    );
    both_ways(etcd::LeaseKeepAliveResponse { header: None, id: 9, ttl: 60 }, "1009183c");
    both_ways(
        etcd::AuthenticateRequest { name: "root".to_owned(), password: "secret".to_owned() },
        "0a04726f6f741206736563726574",
    );
    both_ways(etcd::AuthenticateResponse { header: None, token: "t.1".to_owned() }, "1203742e31");
}

#[test]
fn etcd_members_alarms_and_status_are_upstreams_on_the_wire() {
    use etcd::alarm_request::AlarmAction;
    use etcd::{AlarmMember, AlarmType, DowngradeInfo, Member};
    let member = Member {
        id: 7,
        name: "a".to_owned(),
        peer_urls: words(&["http://p"]),
        client_urls: words(&["http://c"]),
        is_learner: true,
    };
    both_ways(
        etcd::MemberListResponse { header: None, members: vec![member] },
        "121b08071201611a08687474703a2f2f702208687474703a2f2f632801",
    );
    let full = AlarmMember { member_id: 7, alarm: AlarmType::Nospace.into() };
    both_ways(etcd::AlarmResponse { header: None, alarms: vec![full] }, "120408071001");
    both_ways(
        etcd::AlarmRequest {
            action: AlarmAction::Deactivate.into(),
            member_id: 7,
            alarm: AlarmType::Nospace.into(),
        },
        "080210071801",
    );
    both_ways(
        etcd::StatusResponse {
            header: None,
            version: "3.6.13".to_owned(),
            db_size: 1,
            leader: 7,
            raft_index: 2,
            raft_term: 3,
            raft_applied_index: 4,
            errors: words(&["NOSPACE"]),
            db_size_in_use: 5,
            is_learner: true,
            storage_version: "3.6.0".to_owned(),
            db_size_quota: 6,
            downgrade_info: Some(DowngradeInfo { enabled: true, target_version: "3.5".to_owned() }),
        },
        "1206332e362e31331801200728023003380442074e4f5350414345480550015a05332e362e3060066a0708011203332e35",
    );
    both_ways(
        etcd::HashKvResponse { header: None, hash: u32::MAX, compact_revision: 1, hash_revision: 2 },
        "10ffffffff0f18012002",
    );
    both_ways(
        etcd::SnapshotResponse {
            header: None,
            remaining_bytes: 1,
            blob: Bytes::from_static(&[1, 2]),
            version: "3.6".to_owned(),
        },
        "10011a0201022203332e36",
    );
}
