// Command deviceplugin is a device plugin on the published Go definitions: it gives out device nodes, writes down every call
// as a line, and registers again whenever the kubelet's socket is another one. Tests run it, unchanged, on our kubelet.
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
	"google.golang.org/grpc/credentials/insecure"
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
}

func (p *plugin) note(call string, ids []string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	fmt.Fprintln(p.out, strings.TrimSpace(call+" "+strings.Join(ids, ",")))
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	p.note("GetDevicePluginOptions", nil)
	return p.options, nil
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	p.note("ListAndWatch", nil)
	list := &api.ListAndWatchResponse{}
	for id := range p.paths {
		list.Devices = append(list.Devices, &api.Device{ID: id, Health: api.Healthy})
	}
	if err := stream.Send(list); err != nil {
		return err
	}
	select {
	case <-p.stop:
	case <-stream.Context().Done():
	}
	return nil
}

func (p *plugin) GetPreferredAllocation(_ context.Context, request *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	answer := &api.PreferredAllocationResponse{}
	for _, one := range request.ContainerRequests {
		ids := append([]string{}, one.AvailableDeviceIDs...)
		sort.Sort(sort.Reverse(sort.StringSlice(ids)))
		p.note("GetPreferredAllocation", ids)
		answer.ContainerResponses = append(answer.ContainerResponses,
			&api.ContainerPreferredAllocationResponse{DeviceIDs: ids[:one.AllocationSize]})
	}
	return answer, nil
}

func (p *plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, one := range request.ContainerRequests {
		p.note("Allocate", one.DevicesIds)
		response := &api.ContainerAllocateResponse{Envs: map[string]string{p.env: strings.Join(one.DevicesIds, ",")}}
		for _, id := range one.DevicesIds {
			response.Devices = append(response.Devices,
				&api.DeviceSpec{ContainerPath: "/dev/" + id, HostPath: p.paths[id], Permissions: "rw"})
		}
		answer.ContainerResponses = append(answer.ContainerResponses, response)
	}
	return answer, nil
}

func (p *plugin) PreStartContainer(_ context.Context, request *api.PreStartContainerRequest) (*api.PreStartContainerResponse, error) {
	p.note("PreStartContainer", request.DevicesIds)
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

func register(folder, resource, endpoint string, options *api.DevicePluginOptions) error {
	connection, err := grpc.NewClient("unix://"+filepath.Join(folder, "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err = api.NewRegistrationClient(connection).Register(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: endpoint, ResourceName: resource, Options: options})
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
	}
	for _, pair := range strings.Split(*devices, ",") {
		id, path, _ := strings.Cut(pair, "=")
		p.paths[id] = path
	}
	endpoint := strings.ReplaceAll(*resource, "/", "-") + ".sock"
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
		if err = register(*folder, *resource, endpoint, p.options); err != nil {
			log.Print(err)
			continue
		}
		known = now
	}
}
