// Command deviceplugin is a device plugin on the published Go definitions: it gives out device nodes, writes down every call
// as a line, and registers again whenever the kubelet's socket is another one. Tests run it, unchanged, on our kubelet.
//
// What it does wrong is read from a file whenever it matters, one thing in a line: `fail CALL`, `hang CALL`, `empty CALL` for
// an answer about no container, `unhealthy ID`, `gone ID`.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

type plugin struct {
	api.UnimplementedDevicePluginServer
	options *api.DevicePluginOptions
	paths   map[string]string
	env     string
	mutex   sync.Mutex
	out     *os.File
	stop    chan struct{}
	manners string
	cdi     string
}

// does tells whether the file of manners has a line of these words.
func (p *plugin) does(words string) bool {
	text, _ := os.ReadFile(p.manners)
	for _, line := range strings.Split(string(text), "\n") {
		if strings.TrimSpace(line) == words {
			return true
		}
	}
	return false
}

// behave does to a call what the file of manners says.
func (p *plugin) behave(ctx context.Context, call string) error {
	for p.does("hang " + call) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.stop:
			return nil
		case <-time.After(10 * time.Millisecond):
		}
	}
	if p.does("fail " + call) {
		return status.Error(codes.Internal, call+" fails as it was told")
	}
	return nil
}

// list is what there is now, in the order of names.
func (p *plugin) list() *api.ListAndWatchResponse {
	list := &api.ListAndWatchResponse{}
	for id := range p.paths {
		if p.does("gone " + id) {
			continue
		}
		health := api.Healthy
		if p.does("unhealthy " + id) {
			health = api.Unhealthy
		}
		list.Devices = append(list.Devices, &api.Device{ID: id, Health: health})
	}
	sort.Slice(list.Devices, func(a, b int) bool { return list.Devices[a].ID < list.Devices[b].ID })
	return list
}

func (p *plugin) note(call string, ids []string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	fmt.Fprintln(p.out, strings.TrimSpace(call+" "+strings.Join(ids, ",")))
}

func (p *plugin) GetDevicePluginOptions(ctx context.Context, _ *api.Empty) (*api.DevicePluginOptions, error) {
	p.note("GetDevicePluginOptions", nil)
	if err := p.behave(ctx, "GetDevicePluginOptions"); err != nil {
		return nil, err
	}
	return p.options, nil
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	p.note("ListAndWatch", nil)
	if err := p.behave(stream.Context(), "ListAndWatch"); err != nil {
		return err
	}
	told := ""
	for {
		list := p.list()
		if text := fmt.Sprint(list.Devices); text != told {
			if err := stream.Send(list); err != nil {
				return err
			}
			told = text
		}
		select {
		case <-p.stop:
			return nil
		case <-stream.Context().Done():
			return nil
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (p *plugin) GetPreferredAllocation(ctx context.Context, request *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	answer := &api.PreferredAllocationResponse{}
	if err := p.behave(ctx, "GetPreferredAllocation"); err != nil {
		return nil, err
	}
	for _, one := range request.ContainerRequests {
		ids := append([]string{}, one.AvailableDeviceIDs...)
		sort.Sort(sort.Reverse(sort.StringSlice(ids)))
		p.note("GetPreferredAllocation", ids)
		answer.ContainerResponses = append(answer.ContainerResponses,
			&api.ContainerPreferredAllocationResponse{DeviceIDs: ids[:one.AllocationSize]})
	}
	return answer, nil
}

func (p *plugin) Allocate(ctx context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, one := range request.ContainerRequests {
		p.note("Allocate", one.DevicesIds)
		if err := p.behave(ctx, "Allocate"); err != nil {
			return nil, err
		}
		if p.does("empty Allocate") {
			return answer, nil
		}
		response := &api.ContainerAllocateResponse{Envs: map[string]string{p.env: strings.Join(one.DevicesIds, ",")}}
		for _, id := range one.DevicesIds {
			if p.cdi != "" {
				response.CdiDevices = append(response.CdiDevices, &api.CDIDevice{Name: p.cdi + "=" + id})
				continue
			}
			response.Devices = append(response.Devices,
				&api.DeviceSpec{ContainerPath: "/dev/" + id, HostPath: p.paths[id], Permissions: "rw"})
		}
		answer.ContainerResponses = append(answer.ContainerResponses, response)
	}
	return answer, nil
}

func (p *plugin) PreStartContainer(ctx context.Context, request *api.PreStartContainerRequest) (*api.PreStartContainerResponse, error) {
	p.note("PreStartContainer", request.DevicesIds)
	if err := p.behave(ctx, "PreStartContainer"); err != nil {
		return nil, err
	}
	return &api.PreStartContainerResponse{}, nil
}

// inode tells one socket from the next of the same name.
func inode(path string) uint64 {
	var stat syscall.Stat_t
	if syscall.Lstat(path, &stat) != nil {
		return 0
	}
	return stat.Ino ^ uint64(stat.Ctim.Nano())
}

func serve(p *plugin, socket string) (*grpc.Server, error) {
	os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, p)
	go server.Serve(listener)
	return server, nil
}

func register(folder, version, resource, endpoint string, options *api.DevicePluginOptions) error {
	connection, err := grpc.NewClient("unix://"+filepath.Join(folder, "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err = api.NewRegistrationClient(connection).Register(ctx, &api.RegisterRequest{
		Version: version, Endpoint: endpoint, ResourceName: resource, Options: options})
	return err
}

func main() {
	folder := flag.String("folder", api.DevicePluginPath, "the kubelet's folder of device plugins")
	resource := flag.String("resource", "", "the resource to serve")
	devices := flag.String("devices", "", "id=path,id=path: what there is")
	env := flag.String("env", "DEVICES", "the variable that tells a container its devices")
	out := flag.String("log", "/dev/stdout", "where calls are written down")
	prefer := flag.Bool("prefer", false, "offer a preference: the last devices first")
	prestart := flag.Bool("prestart", false, "want to be told before a container starts")
	manners := flag.String("manners", "", "the file that says what to do wrong")
	cdi := flag.String("cdi", "", "give out CDI devices of this kind instead of nodes")
	version := flag.String("version", api.Version, "the version of the protocol to register with")
	socket := flag.String("socket", "", "the name of the plugin's own socket; from the resource unless told")
	flag.Parse()
	file, err := os.OpenFile(*out, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		log.Fatal(err)
	}
	p := &plugin{
		options: &api.DevicePluginOptions{GetPreferredAllocationAvailable: *prefer, PreStartRequired: *prestart},
		paths:   map[string]string{},
		env:     *env,
		out:     file,
		manners: *manners,
		cdi:     *cdi,
	}
	for _, pair := range strings.Split(*devices, ",") {
		id, path, _ := strings.Cut(pair, "=")
		p.paths[id] = path
	}
	endpoint := *socket
	if endpoint == "" {
		endpoint = strings.ReplaceAll(*resource, "/", "-") + ".sock"
	}
	var known uint64
	var server *grpc.Server
	for ; ; time.Sleep(20 * time.Millisecond) {
		now := inode(filepath.Join(*folder, "kubelet.sock"))
		if now == 0 || now == known {
			continue
		}
		if server != nil {
			close(p.stop)
			server.Stop()
		}
		p.stop = make(chan struct{})
		if server, err = serve(p, filepath.Join(*folder, endpoint)); err != nil {
			log.Fatal(err)
		}
		if err = register(*folder, *version, *resource, endpoint, p.options); err != nil {
			p.note("refused "+err.Error(), nil)
			continue
		}
		known = now
	}
}
