// Starts a control plane as the test suites of operators do, defines a kind, makes one of it, and says how long all that took.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() (failed error) {
	ctx := context.Background()
	env := &envtest.Environment{BinaryAssetsDirectory: os.Args[1]}
	env.CRDs = []*apiextensionsv1.CustomResourceDefinition{definition()}
	begun := time.Now()
	cfg, err := env.Start()
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	started := time.Since(begun)
	defer func() {
		if err := env.Stop(); err != nil && failed == nil {
			failed = fmt.Errorf("stop: %w", err)
		}
	}()
	admin, err := client.New(cfg, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return err
	}
	// Nobody makes accounts here, and a pod is created all the same.
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"}}
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "x"}}
	if err := admin.Create(ctx, pod); err != nil {
		return fmt.Errorf("create a pod: %w", err)
	}
	gear := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "env.example.com/v1", "kind": "Gear",
		"metadata": map[string]any{"name": "g", "namespace": "default"},
		"spec":     map[string]any{"teeth": int64(12)},
	}}
	if err := admin.Create(ctx, gear); err != nil {
		return fmt.Errorf("create a custom resource: %w", err)
	}
	gears := &unstructured.UnstructuredList{}
	gears.SetAPIVersion("env.example.com/v1")
	gears.SetKind("GearList")
	if err := admin.List(ctx, gears); err != nil {
		return fmt.Errorf("list custom resources: %w", err)
	}
	// A user of the environment's own authority has the rights that it is given, and no others.
	user, err := env.AddUser(envtest.User{Name: "somebody", Groups: []string{"some"}}, cfg)
	if err != nil {
		return fmt.Errorf("add a user: %w", err)
	}
	theirs, err := client.New(user.Config(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return err
	}
	before := theirs.List(ctx, &corev1.ConfigMapList{}, client.InNamespace("default"))
	// Of a role of its own: nobody fills the aggregated ones here.
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "r", Namespace: "default"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}},
	}
	if err := admin.Create(ctx, role); err != nil {
		return fmt.Errorf("make a role: %w", err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "default"},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "r"},
		Subjects:   []rbacv1.Subject{{APIGroup: "rbac.authorization.k8s.io", Kind: "User", Name: "somebody"}},
	}
	if err := admin.Create(ctx, binding); err != nil {
		return fmt.Errorf("bind a role: %w", err)
	}
	after := theirs.List(ctx, &corev1.ConfigMapList{}, client.InNamespace("default"))
	for deadline := time.Now().Add(5 * time.Second); after != nil && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
		after = theirs.List(ctx, &corev1.ConfigMapList{}, client.InNamespace("default"))
	}
	fmt.Printf("gears=%d refused=%v allowed=%v started=%dms\n", len(gears.Items), before != nil, after == nil, started.Milliseconds())
	return nil
}

func definition() *apiextensionsv1.CustomResourceDefinition {
	keep := true
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "gears.env.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "env.example.com",
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "gears", Kind: "Gear"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &keep},
				},
			}},
		},
	}
}
