// Answers questions of arithmetic with upstream's own packages: one JSON object per line in, one per line out.
//
// The questions are made by base/api/tests/arithmetic/cases.rs, where our own answers are compared with these.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"

	"github.com/distribution/reference"
	"github.com/go-logr/logr"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	resources "k8s.io/component-helpers/resource"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
)

// question holds the fields of every kind of question; `ask` says which are used.
type question struct {
	Ask         string                         `json:"ask"`
	Text        string                         `json:"text"`
	Right       string                         `json:"right"`
	Pod         core.Pod                       `json:"pod"`
	Node        core.Node                      `json:"node"`
	Preferred   []core.PreferredSchedulingTerm `json:"preferred"`
	Labels      map[string]string              `json:"labels"`
	Selector    *metav1.LabelSelector          `json:"selector"`
	Tolerations []core.Toleration              `json:"tolerations"`
	Taint       core.Taint                     `json:"taint"`
	Object      metav1.ObjectMeta              `json:"object"`
	Owner       metav1.ObjectMeta              `json:"owner"`
	Conditions  []metav1.Condition             `json:"conditions"`
	Condition   metav1.Condition               `json:"condition"`
}

type answer map[string]any

func canonical(q resource.Quantity) string {
	number, suffix := q.CanonicalizeBytes(nil)
	return string(number) + string(suffix)
}

// within says whether the quantity, times `scale`, is one that upstream's integers hold. They are not asked for
// negative ones, of which some are rounded to a number of the other sign (-1n to 1).
func within(q resource.Quantity, scale int64) bool {
	return q.Sign() >= 0 && q.Cmp(*resource.NewQuantity(math.MaxInt64/scale, resource.DecimalSI)) <= 0
}

func quantity(text string) answer {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return answer{"error": err.Error()}
	}
	out := answer{"text": q.String(), "canonical": canonical(q.DeepCopy()), "sign": q.Sign()}
	if within(q, 1) {
		out["value"] = q.Value()
	}
	if within(q, 1000) {
		out["milli"] = q.MilliValue()
	}
	return out
}

func sum(left, right string) answer {
	l, r := resource.MustParse(left), resource.MustParse(right)
	order := l.Cmp(r)
	l.Add(r)
	return answer{"sum": canonical(l), "order": order}
}

func list(from core.ResourceList) map[string]string {
	out := map[string]string{}
	for name, amount := range from {
		out[string(name)] = canonical(amount)
	}
	return out
}

func pod(pod *core.Pod) answer {
	assumed := core.ResourceList{core.ResourceCPU: resource.MustParse("100m"), core.ResourceMemory: resource.MustParse("200Mi")}
	// Each call gets a pod of its own: adding the overhead may change the quantities of the pod it is given.
	return answer{
		"requests": list(resources.PodRequests(pod.DeepCopy(), resources.PodResourcesOptions{})),
		"limits":   list(resources.PodLimits(pod.DeepCopy(), resources.PodResourcesOptions{})),
		"nonzero":  list(resources.PodRequests(pod.DeepCopy(), resources.PodResourcesOptions{NonMissingContainerRequests: assumed})),
		"effective": list(resources.PodRequests(pod.DeepCopy(), resources.PodResourcesOptions{
			UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true,
		})),
		"qos": string(qos.ComputePodQOS(pod)),
	}
}

func textSelector(text string, set map[string]string) answer {
	selector, err := labels.Parse(text)
	if err != nil {
		return answer{"error": err.Error()}
	}
	return answer{"matches": selector.Matches(labels.Set(set))}
}

func labelSelector(object *metav1.LabelSelector, set map[string]string) answer {
	selector, err := metav1.LabelSelectorAsSelector(object)
	if err != nil {
		return answer{"refused": true}
	}
	return answer{"matches": selector.Matches(labels.Set(set)), "text": selector.String()}
}

func preferred(terms []core.PreferredSchedulingTerm, node *core.Node) answer {
	parsed, err := nodeaffinity.NewPreferredSchedulingTerms(terms)
	if err != nil {
		return answer{"refused": true}
	}
	return answer{"score": parsed.Score(node)}
}

func image(text string) answer {
	named, err := reference.ParseNormalizedNamed(text)
	if err != nil {
		return answer{"refused": true}
	}
	named = reference.TagNameOnly(named)
	out := answer{"text": named.String(), "domain": reference.Domain(named), "path": reference.Path(named)}
	if tagged, ok := named.(reference.Tagged); ok {
		out["tag"] = tagged.Tag()
	}
	if digested, ok := named.(reference.Digested); ok {
		out["digest"] = digested.Digest().String()
	}
	return out
}

func owner(object, owner *metav1.ObjectMeta) answer {
	out := answer{"controlled": metav1.IsControlledBy(object, owner)}
	if controller := metav1.GetControllerOf(object); controller != nil {
		out["controller"] = controller.UID
	}
	return out
}

func condition(conditions []metav1.Condition, set metav1.Condition) answer {
	before := meta.IsStatusConditionTrue(conditions, set.Type)
	changed := meta.SetStatusCondition(&conditions, set)
	return answer{"before": before, "changed": changed, "conditions": conditions}
}

func reply(q *question) answer {
	switch q.Ask {
	case "quantity":
		return quantity(q.Text)
	case "sum":
		return sum(q.Text, q.Right)
	case "pod":
		return pod(&q.Pod)
	case "text selector":
		return textSelector(q.Text, q.Labels)
	case "label selector":
		return labelSelector(q.Selector, q.Labels)
	case "node":
		// A term that cannot be read counts only when no other one matches.
		matches, _ := nodeaffinity.GetRequiredNodeAffinity(&q.Pod).Match(&q.Node)
		return answer{"matches": matches}
	case "preferred":
		return preferred(q.Preferred, &q.Node)
	case "toleration":
		return answer{"tolerated": scheduling.TolerationsTolerateTaint(logr.Discard(), q.Tolerations, &q.Taint, true)}
	case "image":
		return image(q.Text)
	case "owner":
		return owner(&q.Object, &q.Owner)
	case "condition":
		return condition(q.Conditions, q.Condition)
	}
	panic("no such question: " + q.Ask)
}

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	for in.Scan() {
		var next question
		if err := json.Unmarshal(in.Bytes(), &next); err != nil {
			panic(fmt.Errorf("%s: %w", in.Text(), err))
		}
		if err := lines.Encode(reply(&next)); err != nil {
			panic(err)
		}
	}
	if err := in.Err(); err != nil {
		panic(err)
	}
}
