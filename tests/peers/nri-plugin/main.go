// Command nri-plugin is an NRI plugin on the published Go stub: it writes down every event as one line of JSON and
// makes every kind of adjustment there is. Tests run it, unchanged, on our runtime and on others.
//
// A pod's annotations tell it what to do: "adjust/CONTAINER" lists kinds of adjustment for that container, and
// "refuse/EVENT" is the reason to refuse an event with.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"sync"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

type plugin struct {
	mutex  sync.Mutex
	out    *os.File
	adjust bool
	full   bool
	stub   stub.Stub
}

type line struct {
	Event     string          `json:"event"`
	Pod       string          `json:"pod,omitempty"`
	Container string          `json:"container,omitempty"`
	IPs       []string        `json:"ips,omitempty"`
	Netns     string          `json:"netns,omitempty"`
	Pods      int             `json:"pods,omitempty"`
	Size      int             `json:"size,omitempty"`
	Text      string          `json:"text,omitempty"`
	PodIs     json.RawMessage `json:"podIs,omitempty"`
	Is        json.RawMessage `json:"is,omitempty"`
	Asked     json.RawMessage `json:"asked,omitempty"`
	Owners    json.RawMessage `json:"owners,omitempty"`
	PodNames  []string        `json:"podNames,omitempty"`
}

func (p *plugin) say(l line) {
	text, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.out != nil {
		p.out.Write(append(text, '\n'))
	}
}

func (p *plugin) whole(message proto.Message) json.RawMessage {
	if !p.full || message == nil {
		return nil
	}
	text, err := protojson.Marshal(message)
	if err != nil {
		panic(err)
	}
	return text
}

func (p *plugin) happened(event string, pod *api.PodSandbox, container *api.Container, more ...func(*line)) error {
	l := line{Event: event, Pod: pod.GetName(), Container: container.GetName(), IPs: pod.GetIps()}
	for _, ns := range pod.GetLinux().GetNamespaces() {
		if ns.Type == "network" {
			l.Netns = ns.Path
		}
	}
	for _, value := range pod.GetAnnotations() {
		l.Size += len(value)
	}
	if pod != nil {
		l.PodIs = p.whole(pod)
	}
	if container != nil {
		l.Is = p.whole(container)
	}
	for _, add := range more {
		add(&l)
	}
	p.say(l)
	if reason := pod.GetAnnotations()["refuse/"+event]; reason != "" {
		return &refusal{reason}
	}
	return nil
}

type refusal struct{ reason string }

func (r *refusal) Error() string { return r.reason }

// Configure takes the log file's path from the runtime, for plugins that the runtime starts.
func (p *plugin) Configure(_ context.Context, config, runtime, version string) (api.EventMask, error) {
	for _, entry := range strings.Split(config, "\n") {
		if path, ok := strings.CutPrefix(entry, "log="); ok {
			out, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
			if err != nil {
				return 0, err
			}
			p.out = out
		}
	}
	p.say(line{Event: "Configure", Text: runtime + " " + version})
	return 0, nil
}

func (p *plugin) Synchronize(_ context.Context, pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	l := line{Event: "Synchronize", Pods: len(pods), Size: len(containers)}
	if p.full {
		for _, pod := range pods {
			l.PodNames = append(l.PodNames, pod.GetName())
		}
	}
	p.say(l)
	return nil, nil
}

func (p *plugin) RunPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	return p.happened("RunPodSandbox", pod, nil)
}

func (p *plugin) UpdatePodSandbox(_ context.Context, pod *api.PodSandbox, _, resources *api.LinuxResources) error {
	return p.happened("UpdatePodSandbox", pod, nil, func(l *line) { l.Asked = p.whole(resources) })
}

func (p *plugin) PostUpdatePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	return p.happened("PostUpdatePodSandbox", pod, nil)
}

func (p *plugin) StopPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	return p.happened("StopPodSandbox", pod, nil)
}

func (p *plugin) RemovePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	return p.happened("RemovePodSandbox", pod, nil)
}

func (p *plugin) CreateContainer(_ context.Context, pod *api.PodSandbox, container *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	if err := p.happened("CreateContainer", pod, container); err != nil {
		return nil, nil, err
	}
	a := &api.ContainerAdjustment{}
	kinds := pod.GetAnnotations()["adjust/"+container.GetName()]
	for _, kind := range strings.Split(kinds, ",") {
		adjust(a, kind, pod)
	}
	if p.adjust {
		a.AddEnv("NRI_PLUGIN", "go")
		a.AddAnnotation("nri-plugin", strings.Repeat("x", 100_000))
		a.AddMount(&api.Mount{Destination: "/nri", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid"}})
		a.AddRlimit("RLIMIT_NOFILE", 512, 256)
		a.SetLinuxOomScoreAdj(intp(500))
		a.SetLinuxCPUShares(77)
		a.SetLinuxPidLimits(99)
		a.SetLinuxSysctl("net.ipv4.ip_forward", "1")
	}
	if !p.adjust && kinds == "" {
		return nil, nil, nil
	}
	return a, nil, nil
}

// adjust makes one kind of adjustment.
func adjust(a *api.ContainerAdjustment, kind string, pod *api.PodSandbox) {
	switch kind {
	case "env":
		a.AddEnv("NRI_PLUGIN", "go")
		a.RemoveEnv("GONE")
		a.RemoveEnv("CHANGED")
		a.AddEnv("CHANGED", "by-nri")
	case "args":
		a.SetArgs([]string{"/pod-app", "sleep", "601"})
	case "annotations":
		a.AddAnnotation("nri-plugin", "go")
		a.RemoveAnnotation("gone")
	case "mounts":
		a.AddMount(&api.Mount{Destination: "/nri", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "size=64k"}})
		a.RemoveMount("/gone")
	case "devices":
		a.AddDevice(&api.LinuxDevice{Path: "/dev/nri-null", Type: "c", Major: 1, Minor: 3, FileMode: api.FileMode(os.FileMode(0o640)), Uid: api.UInt32(uint32(7)), Gid: api.UInt32(uint32(8))})
	case "cdi":
		a.AddCDIDevice(&api.CDIDevice{Name: pod.GetAnnotations()["cdi"]})
	case "hooks":
		hook := func(stage string) []*api.Hook {
			command := "echo " + stage + " >> " + pod.GetAnnotations()["hooks"]
			return []*api.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", command}, Env: []string{"PATH=/usr/bin:/bin"}, Timeout: api.Int(10)}}
		}
		a.AddHooks(&api.Hooks{CreateRuntime: hook("createRuntime"), Poststart: hook("poststart"), Poststop: hook("poststop")})
	case "rlimits":
		a.AddRlimit("RLIMIT_NOFILE", 512, 256)
	case "memory":
		a.SetLinuxMemoryLimit(64 << 20)
	case "cpu":
		a.SetLinuxCPUShares(77)
		a.SetLinuxCPUQuota(50_000)
		a.SetLinuxCPUPeriod(100_000)
		a.SetLinuxCPUSetCPUs("0")
	case "pids":
		a.SetLinuxPidLimits(99)
	case "hugepages":
		a.AddLinuxHugepageLimit("2MB", 4<<20)
	case "unified":
		a.AddLinuxUnified("memory.high", "50000000")
	case "blockio":
		a.SetLinuxBlockIOClass("podwire-none")
	case "rdt":
		a.SetLinuxRDTClosID("podwire-none")
	case "cgroup":
		a.SetLinuxCgroupsPath(pod.GetAnnotations()["cgroup"])
	case "oom":
		a.SetLinuxOomScoreAdj(intp(500))
	case "io-priority":
		a.SetLinuxIOPriority(&api.LinuxIOPriority{Class: api.IOPrioClass_IOPRIO_CLASS_BE, Priority: 6})
	case "scheduler":
		a.SetLinuxScheduler(&api.LinuxScheduler{Policy: api.LinuxSchedulerPolicy_SCHED_BATCH, Nice: 5})
	case "seccomp":
		a.SetLinuxSeccompPolicy(&api.LinuxSeccomp{
			DefaultAction: "SCMP_ACT_ALLOW",
			Architectures: []string{"SCMP_ARCH_X86_64"},
			Syscalls:      []*api.LinuxSyscall{{Names: []string{"sethostname"}, Action: "SCMP_ACT_ERRNO"}},
		})
	case "namespaces":
		a.AddOrReplaceNamespace(&api.LinuxNamespace{Type: "uts", Path: pod.GetAnnotations()["uts"]})
	case "sysctl":
		a.SetLinuxSysctl("net.core.somaxconn", "777")
	case "net-devices":
		a.AddLinuxNetDevice(pod.GetAnnotations()["net-device"], &api.LinuxNetDevice{Name: "nd0"})
	case "memory-policy":
		a.SetLinuxMemoryPolicy(api.MpolMode_MPOL_BIND, "0")
	}
}

func intp(value int) *int { return &value }

func (p *plugin) PostCreateContainer(_ context.Context, pod *api.PodSandbox, container *api.Container) error {
	return p.happened("PostCreateContainer", pod, container)
}

func (p *plugin) StartContainer(_ context.Context, pod *api.PodSandbox, container *api.Container) error {
	return p.happened("StartContainer", pod, container)
}

func (p *plugin) PostStartContainer(_ context.Context, pod *api.PodSandbox, container *api.Container) error {
	if strings.Contains(pod.GetAnnotations()["adjust/"+container.GetName()], "unprompted") {
		id := container.GetId()
		go func() {
			u := &api.ContainerUpdate{}
			u.SetContainerId(id)
			u.SetLinuxCPUShares(99)
			failed, err := p.stub.UpdateContainers([]*api.ContainerUpdate{u})
			text := ""
			if err != nil {
				text = err.Error()
			}
			p.say(line{Event: "Unprompted", Container: container.GetName(), Size: len(failed), Text: text})
		}()
	}
	return p.happened("PostStartContainer", pod, container)
}

func (p *plugin) UpdateContainer(_ context.Context, pod *api.PodSandbox, container *api.Container, resources *api.LinuxResources) ([]*api.ContainerUpdate, error) {
	err := p.happened("UpdateContainer", pod, container, func(l *line) { l.Asked = p.whole(resources) })
	if err != nil || !(p.adjust || strings.Contains(pod.GetAnnotations()["adjust/"+container.GetName()], "update")) {
		return nil, err
	}
	u := &api.ContainerUpdate{}
	u.SetContainerId(container.GetId())
	u.SetLinuxCPUShares(88)
	return []*api.ContainerUpdate{u}, nil
}

func (p *plugin) PostUpdateContainer(_ context.Context, pod *api.PodSandbox, container *api.Container) error {
	return p.happened("PostUpdateContainer", pod, container)
}

func (p *plugin) StopContainer(_ context.Context, pod *api.PodSandbox, container *api.Container) ([]*api.ContainerUpdate, error) {
	return nil, p.happened("StopContainer", pod, container)
}

func (p *plugin) RemoveContainer(_ context.Context, pod *api.PodSandbox, container *api.Container) error {
	return p.happened("RemoveContainer", pod, container)
}

func (p *plugin) ValidateContainerAdjustment(_ context.Context, request *api.ValidateContainerAdjustmentRequest) error {
	return p.happened("ValidateContainerAdjustment", request.GetPod(), request.GetContainer(), func(l *line) {
		l.Asked = p.whole(request.GetAdjust())
		if fields, ok := request.GetOwners().GetOwners()[request.GetContainer().GetId()]; ok {
			l.Owners = p.whole(fields)
		}
	})
}

func main() {
	p := &plugin{}
	var options []stub.Option
	name := flag.String("name", "", "plugin name")
	index := flag.String("index", "", "plugin index")
	socket := flag.String("socket", "", "where the runtime listens")
	log := flag.String("log", "", "file to write events to")
	flag.BoolVar(&p.adjust, "adjust", false, "adjust containers")
	flag.BoolVar(&p.full, "full", false, "write down pods and containers whole")
	flag.Parse()
	if *name != "" {
		options = append(options, stub.WithPluginName(*name))
	}
	if *index != "" {
		options = append(options, stub.WithPluginIdx(*index))
	}
	if *socket != "" {
		options = append(options, stub.WithSocketPath(*socket))
	}
	if *log != "" {
		out, err := os.OpenFile(*log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			panic(err)
		}
		p.out = out
	}
	s, err := stub.New(p, options...)
	if err != nil {
		panic(err)
	}
	p.stub = s
	if err := s.Run(context.Background()); err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
}
