// Aligns resources with upstream's own topology manager and device manager: one JSON object per line in, one per line out.
//
// The questions are made by node/kubelet/tests/topology/cases.rs, where our own answers are compared with these.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	_ "unsafe" // For the one function of the device manager that takes the path of its socket.

	"github.com/go-logr/logr"
	cadvisor "github.com/google/cadvisor/info/v1"
	"google.golang.org/grpc"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	k8stypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

//go:linkname newManager k8s.io/kubernetes/pkg/kubelet/cm/devicemanager.newManagerImpl
func newManager(logger klog.Logger, socket string, topology []cadvisor.Node, store topologymanager.Store) (*devicemanager.ManagerImpl, error)

// machine is what is configured and what the node has.
type machine struct {
	Policy  string            `json:"policy"`
	Scope   string            `json:"scope"`
	Options map[string]string `json:"options"`
	Nodes   []node            `json:"nodes"`
}

type node struct {
	ID        int      `json:"id"`
	Distances []uint64 `json:"distances"`
}

func (m *machine) topology() []cadvisor.Node {
	var nodes []cadvisor.Node
	for _, node := range m.Nodes {
		nodes = append(nodes, cadvisor.Node{Id: node.ID, Distances: node.Distances})
	}
	return nodes
}

func (m *machine) manager() (topologymanager.Manager, error) {
	return topologymanager.NewManager(m.topology(), m.Policy, m.Scope, m.Options)
}

type hint struct {
	// Nodes is null for a hint without an affinity.
	Nodes     []int `json:"nodes"`
	Preferred bool  `json:"preferred"`
}

type device struct {
	ID string `json:"id"`
	// Nodes is null for a device that says nothing of its topology.
	Nodes  []int64 `json:"nodes"`
	Health string  `json:"health"`
}

type container struct {
	Name    string           `json:"name"`
	Init    bool             `json:"init"`
	Sidecar bool             `json:"sidecar"`
	Limits  map[string]int64 `json:"limits"`
}

type pod struct {
	UID        string      `json:"uid"`
	Gone       bool        `json:"gone"`
	Containers []container `json:"containers"`
}

// question holds the fields of every kind of question; `ask` says which are used.
type question struct {
	Ask       string              `json:"ask"`
	Machine   machine             `json:"machine"`
	Providers []map[string][]hint `json:"providers"`
	Resources map[string][]device `json:"resources"`
	// Prefers says whether the plugins name the devices they prefer: the first ones by name.
	Prefers bool  `json:"prefers"`
	Pods    []pod `json:"pods"`
}

type answer map[string]any

func told(h topologymanager.TopologyHint) answer {
	if h.NUMANodeAffinity == nil {
		return answer{"nodes": nil, "preferred": h.Preferred}
	}
	bits := h.NUMANodeAffinity.GetBits()
	if bits == nil {
		bits = []int{}
	}
	return answer{"nodes": bits, "preferred": h.Preferred}
}

func start(m *machine) answer {
	manager, err := m.manager()
	if err != nil {
		return answer{"error": err.Error()}
	}
	return answer{"scope": manager.Name()}
}

func merge(q *question) answer {
	manager, err := q.Machine.manager()
	if err != nil {
		return answer{"error": err.Error()}
	}
	var providers []map[string][]topologymanager.TopologyHint
	for _, given := range q.Providers {
		var hints map[string][]topologymanager.TopologyHint
		if given != nil {
			hints = map[string][]topologymanager.TopologyHint{}
		}
		for name, list := range given {
			var made []topologymanager.TopologyHint
			if list != nil {
				made = []topologymanager.TopologyHint{}
			}
			for _, h := range list {
				one := topologymanager.TopologyHint{Preferred: h.Preferred}
				if h.Nodes != nil {
					one.NUMANodeAffinity, _ = bitmask.NewBitMask(h.Nodes...)
				}
				made = append(made, one)
			}
			hints[name] = made
		}
		providers = append(providers, hints)
	}
	best, admit := manager.GetPolicy().Merge(klog.Background(), providers)
	out := told(best)
	out["admit"] = admit
	return out
}

// plugin is a device plugin that stands in the same process.
type plugin struct {
	resource string
	prefers  bool
}

func (p *plugin) API() pluginapi.DevicePluginClient { return p }
func (p *plugin) Resource() string                  { return p.resource }
func (p *plugin) SocketPath() string                { return "/none" }

func (p *plugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty, ...grpc.CallOption) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: p.prefers}, nil
}

func (p *plugin) ListAndWatch(context.Context, *pluginapi.Empty, ...grpc.CallOption) (grpc.ServerStreamingClient[pluginapi.ListAndWatchResponse], error) {
	return nil, fmt.Errorf("not asked")
}

func (p *plugin) GetPreferredAllocation(_ context.Context, in *pluginapi.PreferredAllocationRequest, _ ...grpc.CallOption) (*pluginapi.PreferredAllocationResponse, error) {
	out := &pluginapi.PreferredAllocationResponse{}
	for _, request := range in.ContainerRequests {
		chosen := slices.Clone(request.MustIncludeDeviceIDs)
		slices.Sort(request.AvailableDeviceIDs)
		for _, id := range request.AvailableDeviceIDs {
			if len(chosen) < int(request.AllocationSize) && !slices.Contains(chosen, id) {
				chosen = append(chosen, id)
			}
		}
		out.ContainerResponses = append(out.ContainerResponses, &pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: chosen})
	}
	return out, nil
}

func (p *plugin) Allocate(_ context.Context, in *pluginapi.AllocateRequest, _ ...grpc.CallOption) (*pluginapi.AllocateResponse, error) {
	out := &pluginapi.AllocateResponse{}
	for range in.ContainerRequests {
		out.ContainerResponses = append(out.ContainerResponses, &pluginapi.ContainerAllocateResponse{})
	}
	return out, nil
}

func (p *plugin) PreStartContainer(context.Context, *pluginapi.PreStartContainerRequest, ...grpc.CallOption) (*pluginapi.PreStartContainerResponse, error) {
	return &pluginapi.PreStartContainerResponse{}, nil
}

type ready struct{}

func (ready) AddSource(string) {}
func (ready) AllReady() bool   { return true }

func (p *pod) object() *core.Pod {
	out := &core.Pod{}
	out.Name, out.Namespace, out.UID = p.UID, "default", k8stypes.UID(p.UID)
	always := core.ContainerRestartPolicyAlways
	for _, c := range p.Containers {
		made := core.Container{Name: c.Name}
		made.Resources.Limits = core.ResourceList{}
		for name, count := range c.Limits {
			made.Resources.Limits[core.ResourceName(name)] = *resource.NewQuantity(count, resource.DecimalSI)
		}
		if c.Sidecar {
			made.RestartPolicy = &always
		}
		if c.Init {
			out.Spec.InitContainers = append(out.Spec.InitContainers, made)
		} else {
			out.Spec.Containers = append(out.Spec.Containers, made)
		}
	}
	return out
}

// devices are the pod's, by container and resource; without plugins that prefer, which ones is left to chance, so that only
// how many are within the affinity, elsewhere and nowhere is told (nowhere, too, where there is no affinity).
func devices(q *question, manager *devicemanager.ManagerImpl, aligner topologymanager.Manager, pod *core.Pod) answer {
	out := answer{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		affinity := aligner.GetAffinity(string(pod.UID), c.Name).NUMANodeAffinity
		own := answer{}
		for name, instances := range manager.GetDevices(string(pod.UID), c.Name) {
			if q.Prefers {
				own[name] = slices.Sorted(maps.Keys(instances))
				continue
			}
			within, elsewhere, nowhere := 0, 0, 0
			for id := range instances {
				nodes := []int{}
				for _, d := range q.Resources[name] {
					for _, node := range d.Nodes {
						if d.ID == id && node != -1 {
							nodes = append(nodes, int(node))
						}
					}
				}
				switch {
				case affinity == nil || len(nodes) == 0:
					nowhere++
				case affinity.AnySet(nodes):
					within++
				default:
					elsewhere++
				}
			}
			own[name] = []int{within, elsewhere, nowhere}
		}
		out[c.Name] = own
	}
	return out
}

func admit(q *question, folder string) (answer, error) {
	logger := klog.Background()
	aligner, err := q.Machine.manager()
	if err != nil {
		return answer{"error": err.Error()}, nil
	}
	manager, err := newManager(logger, filepath.Join(folder, "kubelet.sock"), q.Machine.topology(), aligner)
	if err != nil {
		return nil, err
	}
	active := map[string]*core.Pod{}
	pods := func() []*core.Pod { return slices.Collect(maps.Values(active)) }
	if err := manager.Start(logger, pods, ready{}, containermap.NewContainerMap(), sets.New[string]()); err != nil {
		return nil, err
	}
	defer func() {
		_ = manager.Stop(logger)
	}()
	for name, list := range q.Resources {
		if err := manager.PluginConnected(context.Background(), name, &plugin{name, q.Prefers}); err != nil {
			return nil, err
		}
		response := &pluginapi.ListAndWatchResponse{}
		for _, d := range list {
			made := &pluginapi.Device{ID: d.ID, Health: d.Health}
			if d.Nodes != nil {
				made.Topology = &pluginapi.TopologyInfo{}
				for _, id := range d.Nodes {
					made.Topology.Nodes = append(made.Topology.Nodes, &pluginapi.NUMANode{ID: id})
				}
			}
			response.Devices = append(response.Devices, made)
		}
		manager.PluginListAndWatchReceiver(logger, name, response)
	}
	aligner.AddHintProvider(logger, manager)
	results := []answer{}
	for _, p := range q.Pods {
		if p.Gone {
			delete(active, p.UID)
			results = append(results, answer{})
			continue
		}
		pod := p.object()
		active[p.UID] = pod
		result := aligner.Admit(&lifecycle.PodAdmitAttributes{Pod: pod})
		if !result.Admit {
			delete(active, p.UID)
			results = append(results, answer{"reason": result.Reason, "message": result.Message})
			continue
		}
		affinities := answer{}
		for _, c := range p.Containers {
			affinities[c.Name] = told(aligner.GetAffinity(p.UID, c.Name))
		}
		results = append(results, answer{"affinities": affinities, "devices": devices(q, manager, aligner, pod)})
	}
	return answer{"pods": results}, nil
}

func reply(q *question) (answer, error) {
	switch q.Ask {
	case "start":
		return start(&q.Machine), nil
	case "merge":
		return merge(q), nil
	case "admit":
		folder, err := os.MkdirTemp("", "topology")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(folder)
		return admit(q, folder)
	}
	return nil, fmt.Errorf("nobody knows %q", q.Ask)
}

func main() {
	klog.SetLogger(logr.Discard())
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<24)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for in.Scan() {
		var q question
		err := json.Unmarshal(in.Bytes(), &q)
		var a answer
		if err == nil {
			a, err = reply(&q)
		}
		var line []byte
		if err == nil {
			line, err = json.Marshal(a)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Fprintln(out, string(line))
	}
}
