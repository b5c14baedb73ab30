// A client-go program with a shared informer and a lister, as controllers have them.
//
// It prints one line per thing that happened (a request's answer, an object added, changed or gone, the cache
// being in sync) and ends when the config map called "stop" appears.
package main

import (
	"fmt"
	"net/http"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// teller prints what the server answered to each request.
type teller struct{ next http.RoundTripper }

func (t teller) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err == nil {
		query := request.URL.Query()
		fmt.Printf("answer %d %s watch=%s initial=%s %s\n", response.StatusCode, request.URL.Path,
			query.Get("watch"), query.Get("sendInitialEvents"), response.Header.Get("Content-Type"))
	}
	return response, err
}

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		panic(err)
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return teller{next} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		panic(err)
	}
	stop := make(chan struct{})
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace("default"))
	maps := factory.Core().V1().ConfigMaps()
	pods := factory.Core().V1().Pods()
	show := func(what string, object any) {
		switch it := object.(type) {
		case *corev1.ConfigMap:
			fmt.Printf("%s configmap %s colour=%s\n", what, it.Name, it.Data["colour"])
			if it.Name == "stop" && what == "added" {
				close(stop)
			}
		case *corev1.Pod:
			fmt.Printf("%s pod %s %s\n", what, it.Name, it.Status.Phase)
		case cache.DeletedFinalStateUnknown:
			fmt.Printf("%s unknown %s\n", what, it.Key)
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { show("added", object) },
		UpdateFunc: func(_, object any) { show("updated", object) },
		DeleteFunc: func(object any) { show("deleted", object) },
	}
	for _, informer := range []cache.SharedIndexInformer{maps.Informer(), pods.Informer()} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			panic(err)
		}
	}
	factory.Start(stop)
	for kind, synced := range factory.WaitForCacheSync(stop) {
		fmt.Printf("synced %s %v\n", kind, synced)
	}
	<-stop
	all, err := maps.Lister().List(labels.SelectorFromSet(labels.Set{"informed": "yes"}))
	if err != nil {
		panic(err)
	}
	fmt.Printf("listed %d\n", len(all))
	// What is still on its way to the terminal may arrive.
	time.Sleep(10 * time.Millisecond)
	factory.Shutdown()
}
