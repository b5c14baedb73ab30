// Command podresources is a client of the kubelet's PodResources on the published Go definitions: it asks every question there
// is about one pod and prints the answers as one line of JSON.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
)

func main() {
	socket := flag.String("socket", "/var/lib/kubelet/pod-resources/kubelet.sock", "where the kubelet serves")
	pod := flag.String("pod", "", "the pod to ask about")
	namespace := flag.String("namespace", "default", "its namespace")
	flag.Parse()
	connection, err := grpc.NewClient("unix://"+*socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client := api.NewPodResourcesListerClient(connection)
	list, err := client.List(ctx, &api.ListPodResourcesRequest{})
	if err != nil {
		log.Fatal(err)
	}
	all, err := client.GetAllocatableResources(ctx, &api.AllocatableResourcesRequest{})
	if err != nil {
		log.Fatal(err)
	}
	answers := map[string]any{"list": list.PodResources, "allocatable": all.Devices}
	one, err := client.Get(ctx, &api.GetPodResourcesRequest{PodName: *pod, PodNamespace: *namespace})
	if err != nil {
		answers["missing"] = status.Convert(err).Message()
	} else {
		answers["get"] = one.PodResources
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		log.Fatal(err)
	}
}
