// Judges objects with upstream's own strategies: one JSON object per line in, one list of complaints per line out.
//
// The questions are made by base/api/tests/validation/cases.rs, where our own answers are compared with these.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/flowcontrol/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"

	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingwebhookconfiguration"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/resolver"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicy"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicybinding"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingwebhookconfiguration"
	"k8s.io/kubernetes/pkg/registry/apps/controllerrevision"
	"k8s.io/kubernetes/pkg/registry/apps/daemonset"
	"k8s.io/kubernetes/pkg/registry/apps/deployment"
	"k8s.io/kubernetes/pkg/registry/apps/replicaset"
	"k8s.io/kubernetes/pkg/registry/apps/statefulset"
	"k8s.io/kubernetes/pkg/registry/autoscaling/horizontalpodautoscaler"
	"k8s.io/kubernetes/pkg/registry/batch/cronjob"
	"k8s.io/kubernetes/pkg/registry/batch/job"
	"k8s.io/kubernetes/pkg/registry/certificates/certificates"
	"k8s.io/kubernetes/pkg/registry/coordination/lease"
	"k8s.io/kubernetes/pkg/registry/core/configmap"
	"k8s.io/kubernetes/pkg/registry/core/endpoint"
	"k8s.io/kubernetes/pkg/registry/core/event"
	"k8s.io/kubernetes/pkg/registry/core/namespace"
	"k8s.io/kubernetes/pkg/registry/core/node"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolume"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim"
	"k8s.io/kubernetes/pkg/registry/core/podtemplate"
	"k8s.io/kubernetes/pkg/registry/core/replicationcontroller"
	"k8s.io/kubernetes/pkg/registry/core/secret"
	"k8s.io/kubernetes/pkg/registry/core/service"
	"k8s.io/kubernetes/pkg/registry/core/serviceaccount"
	"k8s.io/kubernetes/pkg/registry/discovery/endpointslice"
	"k8s.io/kubernetes/pkg/registry/flowcontrol/flowschema"
	"k8s.io/kubernetes/pkg/registry/flowcontrol/prioritylevelconfiguration"
	"k8s.io/kubernetes/pkg/registry/networking/ingress"
	"k8s.io/kubernetes/pkg/registry/networking/ingressclass"
	"k8s.io/kubernetes/pkg/registry/networking/ipaddress"
	"k8s.io/kubernetes/pkg/registry/networking/networkpolicy"
	"k8s.io/kubernetes/pkg/registry/networking/servicecidr"
	"k8s.io/kubernetes/pkg/registry/node/runtimeclass"
	"k8s.io/kubernetes/pkg/registry/policy/poddisruptionbudget"
	"k8s.io/kubernetes/pkg/registry/rbac/clusterrole"
	"k8s.io/kubernetes/pkg/registry/rbac/clusterrolebinding"
	"k8s.io/kubernetes/pkg/registry/rbac/role"
	"k8s.io/kubernetes/pkg/registry/rbac/rolebinding"
	"k8s.io/kubernetes/pkg/registry/resource/deviceclass"
	"k8s.io/kubernetes/pkg/registry/resource/resourceclaim"
	"k8s.io/kubernetes/pkg/registry/resource/resourceclaimtemplate"
	"k8s.io/kubernetes/pkg/registry/resource/resourceslice"
	"k8s.io/kubernetes/pkg/registry/scheduling/priorityclass"
	"k8s.io/kubernetes/pkg/registry/storage/csidriver"
	"k8s.io/kubernetes/pkg/registry/storage/csinode"
	"k8s.io/kubernetes/pkg/registry/storage/csistoragecapacity"
	"k8s.io/kubernetes/pkg/registry/storage/storageclass"
	"k8s.io/kubernetes/pkg/registry/storage/volumeattachment"
	"k8s.io/kubernetes/pkg/registry/storage/volumeattributesclass"
)

// parts of a resource that can be written, each with its strategy; the empty name is the main one.
type parts map[string]rest.RESTUpdateStrategy

// resolve knows no resource; whoever asks may read all parameters.
var resolve = resolver.ResourceResolverFunc(func(kind schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	return schema.GroupVersionResource{}, fmt.Errorf("no resource for %v", kind)
})

var policies = validatingadmissionpolicy.NewStrategy(nil, resolve)

// spaces has one namespace for every name; in that named "plain" nobody gets devices that others use.
type spaces struct{ typedv1.NamespaceInterface }

func (spaces) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Namespace, error) {
	found := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if name != "plain" {
		found.Labels = map[string]string{"resource.kubernetes.io/admin-access": "true"}
	}
	return found, nil
}

var everything = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
})

var claims = resourceclaim.NewStrategy(spaces{}, everything)

var strategies = map[string]parts{
	"certificatesigningrequests":        {"": certificates.Strategy, "status": certificates.StatusStrategy, "approval": certificates.ApprovalStrategy},
	"clusterrolebindings":               {"": clusterrolebinding.Strategy},
	"clusterroles":                      {"": clusterrole.Strategy},
	"configmaps":                        {"": configmap.Strategy},
	"controllerrevisions":               {"": controllerrevision.Strategy},
	"cronjobs":                          {"": cronjob.Strategy, "status": cronjob.StatusStrategy},
	"csidrivers":                        {"": csidriver.Strategy},
	"csinodes":                          {"": csinode.Strategy},
	"csistoragecapacities":              {"": csistoragecapacity.Strategy},
	"daemonsets":                        {"": daemonset.Strategy, "status": daemonset.StatusStrategy},
	"deployments":                       {"": deployment.Strategy, "status": deployment.StatusStrategy},
	"deviceclasses":                     {"": deviceclass.Strategy},
	"endpoints":                         {"": endpoint.Strategy},
	"endpointslices":                    {"": endpointslice.Strategy},
	"events":                            {"": event.Strategy},
	"flowschemas":                       {"": flowschema.Strategy, "status": flowschema.StatusStrategy},
	"horizontalpodautoscalers":          {"": horizontalpodautoscaler.Strategy, "status": horizontalpodautoscaler.StatusStrategy},
	"ingressclasses":                    {"": ingressclass.Strategy},
	"ingresses":                         {"": ingress.Strategy, "status": ingress.StatusStrategy},
	"ipaddresses":                       {"": ipaddress.Strategy},
	"jobs":                              {"": job.Strategy, "status": job.StatusStrategy},
	"leases":                            {"": lease.Strategy},
	"mutatingwebhookconfigurations":     {"": mutatingwebhookconfiguration.Strategy},
	"namespaces":                        {"": namespace.Strategy, "status": namespace.StatusStrategy, "finalize": namespace.FinalizeStrategy},
	"networkpolicies":                   {"": networkpolicy.Strategy},
	"nodes":                             {"": node.Strategy, "status": node.StatusStrategy},
	"persistentvolumeclaims":            {"": persistentvolumeclaim.Strategy, "status": persistentvolumeclaim.StatusStrategy},
	"persistentvolumes":                 {"": persistentvolume.Strategy, "status": persistentvolume.StatusStrategy},
	"poddisruptionbudgets":              {"": poddisruptionbudget.Strategy, "status": poddisruptionbudget.StatusStrategy},
	"podtemplates":                      {"": podtemplate.Strategy},
	"priorityclasses":                   {"": priorityclass.Strategy},
	"prioritylevelconfigurations":       {"": prioritylevelconfiguration.Strategy, "status": prioritylevelconfiguration.StatusStrategy},
	"replicasets":                       {"": replicaset.Strategy, "status": replicaset.StatusStrategy},
	"replicationcontrollers":            {"": replicationcontroller.Strategy, "status": replicationcontroller.StatusStrategy},
	"resourceclaims":                    {"": claims, "status": resourceclaim.NewStatusStrategy(claims)},
	"resourceclaimtemplates":            {"": resourceclaimtemplate.NewStrategy(spaces{})},
	"resourceslices":                    {"": resourceslice.Strategy},
	"rolebindings":                      {"": rolebinding.Strategy},
	"roles":                             {"": role.Strategy},
	"runtimeclasses":                    {"": runtimeclass.Strategy},
	"secrets":                           {"": secret.Strategy},
	"serviceaccounts":                   {"": serviceaccount.Strategy},
	"servicecidrs":                      {"": servicecidr.Strategy, "status": servicecidr.StatusStrategy},
	"services":                          {"": service.Strategy, "status": service.StatusStrategy},
	"statefulsets":                      {"": statefulset.Strategy, "status": statefulset.StatusStrategy},
	"storageclasses":                    {"": storageclass.Strategy},
	"validatingadmissionpolicies":       {"": policies, "status": validatingadmissionpolicy.NewStatusStrategy(policies)},
	"validatingadmissionpolicybindings": {"": validatingadmissionpolicybinding.NewStrategy(nil, nil, resolve)},
	"validatingwebhookconfigurations":   {"": validatingwebhookconfiguration.Strategy},
	"volumeattachments":                 {"": volumeattachment.Strategy, "status": volumeattachment.StatusStrategy},
	"volumeattributesclasses":           {"": volumeattributesclass.Strategy},
}

// question asks about the creation of `new`, or about the change of `old` to it.
type question struct {
	Resource string          `json:"resource"`
	Part     string          `json:"part"`
	Old      json.RawMessage `json:"old"`
	New      json.RawMessage `json:"new"`
}

// decode gives the object in upstream's internal shape, with its defaults.
func decode(text []byte) (runtime.Object, *request.RequestInfo, string, error) {
	object, kind, err := legacyscheme.Codecs.UniversalDecoder().Decode(text, nil, nil)
	if err != nil {
		return nil, nil, "", err
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, nil, "", err
	}
	info := &request.RequestInfo{IsResourceRequest: true, APIGroup: kind.Group, APIVersion: kind.Version, Namespace: accessor.GetNamespace(), Name: accessor.GetName()}
	return object, info, accessor.GetNamespace(), nil
}

func judge(asked question) error {
	strategy, found := strategies[asked.Resource][asked.Part]
	if !found {
		return fmt.Errorf("no strategy for %q of %q", asked.Part, asked.Resource)
	}
	object, info, space, err := decode(asked.New)
	if err != nil {
		return err
	}
	info.Resource, info.Subresource = asked.Resource, asked.Part
	ctx := request.WithNamespace(request.WithRequestInfo(context.Background(), info), space)
	ctx = request.WithUser(ctx, &user.DefaultInfo{Name: "admin", Groups: []string{"system:masters", "system:authenticated"}})
	if len(asked.Old) == 0 || string(asked.Old) == "null" {
		accessor, err := meta.Accessor(object)
		if err != nil {
			return err
		}
		rest.FillObjectMetaSystemFields(accessor)
		creates, ok := strategy.(rest.RESTCreateStrategy)
		if !ok {
			return fmt.Errorf("%q is not created", asked.Resource)
		}
		return rest.BeforeCreate(creates, ctx, object)
	}
	old, _, _, err := decode(asked.Old)
	if err != nil {
		return err
	}
	return rest.BeforeUpdate(strategy, ctx, object, old)
}

// complaints are those of an answer that clients see, without the differences between Go types that some end with;
// anything else that is wrong is one line of its own.
func complaints(err error) []string {
	if err == nil {
		return []string{}
	}
	status, ok := err.(errors.APIStatus)
	if !ok || status.Status().Details == nil || len(status.Status().Details.Causes) == 0 {
		return []string{"error: " + err.Error()}
	}
	out := []string{}
	for _, cause := range status.Status().Details.Causes {
		message, _, _ := strings.Cut(cause.Message, "\n")
		out = append(out, fmt.Sprintf("%s %s: %s", cause.Type, cause.Field, message))
	}
	return out
}

func main() {
	// It logs where the rules that it generates and those that it has by hand differ.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for lines.Scan() {
		var asked question
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		if err := encoder.Encode(complaints(judge(asked))); err != nil {
			panic(err)
		}
	}
	if err := lines.Err(); err != nil {
		panic(err)
	}
}
