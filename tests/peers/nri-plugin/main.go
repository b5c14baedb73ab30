// Command nri-plugin is an NRI plugin on the published Go stub: it writes down every event as one line of JSON and
// makes every kind of adjustment that does not need special hardware. Tests run it on our runtime and on others.
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
)

type plugin struct {
	mutex  sync.Mutex
	out    *os.File
	adjust bool
}

type line struct {
	Event     string   `json:"event"`
	Pod       string   `json:"pod,omitempty"`
	Container string   `json:"container,omitempty"`
	IPs       []string `json:"ips,omitempty"`
	Netns     string   `json:"netns,omitempty"`
	Pods      int      `json:"pods,omitempty"`
	Size      int      `json:"size,omitempty"`
	Text      string   `json:"text,omitempty"`
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

func (p *plugin) happened(event string, pod *api.PodSandbox, container *api.Container) error {
	l := line{Event: event, Pod: pod.GetName(), Container: container.GetName(), IPs: pod.GetIps()}
	for _, ns := range pod.GetLinux().GetNamespaces() {
		if ns.Type == "network" {
			l.Netns = ns.Path
		}
	}
	for _, value := range pod.GetAnnotations() {
		l.Size += len(value)
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
	p.say(line{Event: "Synchronize", Pods: len(pods), Size: len(containers)})
	return nil, nil
}

func (p *plugin) RunPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	return p.happened("RunPodSandbox", pod, nil)
}

func (p *plugin) UpdatePodSandbox(_ context.Context, pod *api.PodSandbox, _, _ *api.LinuxResources) error {
	return p.happened("UpdatePodSandbox", pod, nil)
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
	if !p.adjust {
		return nil, nil, nil
	}
	a := &api.ContainerAdjustment{}
	a.AddEnv("NRI_PLUGIN", "go")
	a.AddAnnotation("nri-plugin", strings.Repeat("x", 100_000))
	a.AddMount(&api.Mount{Destination: "/nri", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid"}})
	a.AddRlimit("RLIMIT_NOFILE", 512, 256)
	a.SetLinuxOomScoreAdj(intp(500))
	a.SetLinuxCPUShares(77)
	a.SetLinuxPidLimits(99)
	a.SetLinuxSysctl("net.ipv4.ip_forward", "1")
	return a, nil, nil
}

func intp(value int) *int { return &value }

func (p *plugin) PostCreateContainer(_ context.Context, pod *api.PodSandbox, container *api.Container) error {
	return p.happened("PostCreateContainer", pod, container)
}

func (p *plugin) StartContainer(_ context.Context, pod *api.PodSandbox, container *api.Container) error {
	return p.happened("StartContainer", pod, container)
}

func (p *plugin) PostStartContainer(_ context.Context, pod *api.PodSandbox, container *api.Container) error {
	return p.happened("PostStartContainer", pod, container)
}

func (p *plugin) UpdateContainer(_ context.Context, pod *api.PodSandbox, container *api.Container, _ *api.LinuxResources) ([]*api.ContainerUpdate, error) {
	if err := p.happened("UpdateContainer", pod, container); err != nil || !p.adjust {
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
	return p.happened("ValidateContainerAdjustment", request.GetPod(), request.GetContainer())
}

func main() {
	p := &plugin{}
	var options []stub.Option
	name := flag.String("name", "", "plugin name")
	index := flag.String("index", "", "plugin index")
	socket := flag.String("socket", "", "where the runtime listens")
	log := flag.String("log", "", "file to write events to")
	flag.BoolVar(&p.adjust, "adjust", false, "adjust containers")
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
	if err := s.Run(context.Background()); err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
}
