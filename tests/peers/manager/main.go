// A controller-runtime manager with leader election: for every config map labelled "wants-pod" it keeps a pod with
// the image and arguments that the map names, and writes the pod's phase back into an annotation of the map.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const (
	label      = "podwire.invalid/wants-pod"
	annotation = "podwire.invalid/phase"
	finalizer  = "podwire.invalid/pod"
)

type reconciler struct{ client.Client }

func (r reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	wish := &corev1.ConfigMap{}
	if err := r.Get(ctx, request.NamespacedName, wish); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if _, wanted := wish.Labels[label]; !wanted {
		return ctrl.Result{}, nil
	}
	pod := &corev1.Pod{}
	err := r.Get(ctx, request.NamespacedName, pod)
	if err != nil && !errors.IsNotFound(err) {
		return ctrl.Result{}, err
	}
	missing := err != nil
	if !wish.DeletionTimestamp.IsZero() {
		return r.remove(ctx, wish, pod, missing)
	}
	if controllerutil.AddFinalizer(wish, finalizer) {
		return ctrl.Result{}, r.Update(ctx, wish)
	}
	if missing {
		return ctrl.Result{}, r.make(ctx, wish)
	}
	phase := string(pod.Status.Phase)
	if wish.Annotations[annotation] == phase {
		return ctrl.Result{}, nil
	}
	before := client.MergeFrom(wish.DeepCopy())
	if wish.Annotations == nil {
		wish.Annotations = map[string]string{}
	}
	wish.Annotations[annotation] = phase
	fmt.Printf("phase %s %s\n", wish.Name, phase)
	return ctrl.Result{}, r.Patch(ctx, wish, before)
}

func (r reconciler) make(ctx context.Context, wish *corev1.ConfigMap) error {
	grace := int64(1)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: wish.Name, Namespace: wish.Namespace},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{
				Name: "main", Image: wish.Data["image"], ImagePullPolicy: corev1.PullIfNotPresent,
				Args: strings.Fields(wish.Data["args"]),
			}},
		},
	}
	if err := controllerutil.SetControllerReference(wish, pod, r.Scheme()); err != nil {
		return err
	}
	fmt.Printf("create %s\n", pod.Name)
	return r.Create(ctx, pod)
}

func (r reconciler) remove(ctx context.Context, wish *corev1.ConfigMap, pod *corev1.Pod, missing bool) (ctrl.Result, error) {
	if !missing {
		if pod.DeletionTimestamp.IsZero() {
			fmt.Printf("delete %s\n", pod.Name)
			return ctrl.Result{}, client.IgnoreNotFound(r.Delete(ctx, pod))
		}
		return ctrl.Result{}, nil
	}
	controllerutil.RemoveFinalizer(wish, finalizer)
	fmt.Printf("release %s\n", wish.Name)
	return ctrl.Result{}, r.Update(ctx, wish)
}

func main() {
	ctrl.SetLogger(zap.New(zap.WriteTo(os.Stderr)))
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		panic(err)
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		LeaderElection:                true,
		LeaderElectionID:              "podwire-manager",
		LeaderElectionNamespace:       "default",
		LeaderElectionReleaseOnCancel: true,
		Metrics:                       server.Options{BindAddress: "0"},
	})
	if err != nil {
		panic(err)
	}
	err = ctrl.NewControllerManagedBy(manager).For(&corev1.ConfigMap{}).Owns(&corev1.Pod{}).
		Complete(reconciler{manager.GetClient()})
	if err != nil {
		panic(err)
	}
	go func() {
		<-manager.Elected()
		fmt.Println("elected")
	}()
	if err := manager.Start(signals.SetupSignalHandler()); err != nil {
		panic(err)
	}
	fmt.Println("stopped")
}
