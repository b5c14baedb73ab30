// Prints what NetworkPolicies allow between nine pods according to cyclonus' own evaluation: the expected side of the
// truth table in tests/tests/netpolicy_table.rs. The policies are those of cyclonus' generator and those of ours.yaml.
//
// The output is committed as cases/networkpolicy.json, so that the table needs no Go; the interop lane compares.
package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"log"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/mattfenwick/cyclonus/pkg/generator"
	"github.com/mattfenwick/cyclonus/pkg/matcher"
	core "k8s.io/api/core/v1"
	net "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

//go:embed ours.yaml
var ours []byte

// differences are where cyclonus and the specification do not agree; no case depends on them unless it says so.
var differences = []string{
	"a connection from a pod to itself: cyclonus asks the policies, the specification allows it always; recorded as allowed",
	"NotIn on labels without the key: cyclonus does not match, Kubernetes' selectors do; no case has it",
	"a named port and an ipBlock in one egress rule: cyclonus takes the port's name from whichever pod has the address, the specification names ports of pods that selectors select; no case has it",
	"policyTypes left out: cyclonus does not evaluate such a policy; it is given what the API server defaults to, and the case has none",
	"endPort: no difference found; cyclonus evaluates ranges as the specification says",
}

type port struct {
	Name     string        `json:"name,omitempty"`
	Protocol core.Protocol `json:"protocol"`
	Port     int           `json:"port"`
}

func (p port) key() string { return fmt.Sprintf("%s/%d", p.Protocol, p.Port) }

type pod struct {
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	Labels    map[string]string `json:"labels"`
	IPv4      string            `json:"ipv4"`
	IPv6      string            `json:"ipv6"`
	Ports     []port            `json:"ports"`
}

func (p pod) key() string { return p.Namespace + "/" + p.Name }

// world is what exists: namespaces with labels, pods in the order of a table's rows and columns.
type world struct {
	Subnets    []string                     `json:"subnets"`
	Namespaces map[string]map[string]string `json:"namespaces"`
	Pods       []pod                        `json:"pods"`
}

// labels are changed before a case and changed back after it.
type labels struct {
	Namespaces map[string]map[string]string `json:"namespaces,omitempty"`
	Pods       map[string]map[string]string `json:"pods,omitempty"`
}

// table is a square for all ports with the same one: a row for each source, in it 1 or 0 for each destination.
type table struct {
	Ports []string `json:"ports"`
	Rows  string   `json:"rows"`
}

type policy struct {
	APIVersion string                 `json:"apiVersion"`
	Kind       string                 `json:"kind"`
	Metadata   map[string]string      `json:"metadata"`
	Spec       *net.NetworkPolicySpec `json:"spec"`
}

type testCase struct {
	Name     string   `json:"name"`
	From     string   `json:"from"`
	Labels   *labels  `json:"labels,omitempty"`
	Policies []policy `json:"policies"`
	V4       []table  `json:"v4"`
	// V6 is left out where it is the same.
	V6 []table `json:"v6,omitempty"`
}

func newWorld() *world {
	w := &world{Subnets: []string{"10.64.0.0/24", "fd64::/64"}, Namespaces: map[string]map[string]string{}}
	for n, namespace := range []string{"x", "y", "z"} {
		w.Namespaces[namespace] = map[string]string{"ns": namespace, "kubernetes.io/metadata.name": namespace}
		for p, name := range []string{"a", "b", "c"} {
			host := 2 + 3*n + p
			w.Pods = append(w.Pods, pod{
				Namespace: namespace, Name: name, Labels: map[string]string{"pod": name},
				IPv4: fmt.Sprintf("10.64.0.%d", host), IPv6: fmt.Sprintf("fd64::%x", host),
				Ports: ports(namespace, name),
			})
		}
	}
	return w
}

// ports has those of cyclonus' own pods, and two whose names mean different numbers in y and nothing in z/c.
func ports(namespace, name string) []port {
	var all []port
	for _, number := range []int{80, 81} {
		for _, protocol := range []core.Protocol{core.ProtocolTCP, core.ProtocolUDP, core.ProtocolSCTP} {
			name := fmt.Sprintf("serve-%d-%s", number, strings.ToLower(string(protocol)))
			all = append(all, port{name, protocol, number})
		}
	}
	web, alt := "web", "alt"
	switch {
	case namespace == "y":
		web, alt = alt, web
	case namespace == "z" && name == "c":
		web, alt = "", ""
	}
	return append(all, port{web, core.ProtocolTCP, 8080}, port{alt, core.ProtocolTCP, 8081})
}

// with is the world under other labels.
func (w *world) with(l *labels) *world {
	if l == nil {
		return w
	}
	other := &world{Subnets: w.Subnets, Namespaces: maps.Clone(w.Namespaces), Pods: slices.Clone(w.Pods)}
	maps.Copy(other.Namespaces, l.Namespaces)
	for i := range other.Pods {
		if changed, ok := l.Pods[other.Pods[i].key()]; ok {
			other.Pods[i].Labels = changed
		}
	}
	return other
}

// evaluate asks cyclonus about every pair and port.
func (w *world) evaluate(policies []*net.NetworkPolicy, address func(pod) string) []table {
	plain, simple := matcher.BuildNetworkPolicies(false, policies), matcher.BuildNetworkPolicies(true, policies)
	peer := func(p pod) *matcher.TrafficPeer {
		internal := &matcher.InternalPeer{PodLabels: p.Labels, NamespaceLabels: w.Namespaces[p.Namespace], Namespace: p.Namespace}
		return &matcher.TrafficPeer{Internal: internal, IP: address(p)}
	}
	var tables []table
	for i := range w.Pods[0].Ports {
		key := w.Pods[0].Ports[i].key()
		var rows []string
		for _, from := range w.Pods {
			row := ""
			for _, to := range w.Pods {
				target := to.Ports[i]
				traffic := &matcher.Traffic{
					Source: peer(from), Destination: peer(to),
					ResolvedPort: target.Port, ResolvedPortName: target.Name, Protocol: target.Protocol,
				}
				allowed := plain.IsTrafficAllowed(traffic).IsAllowed()
				if allowed != simple.IsTrafficAllowed(traffic).IsAllowed() {
					log.Fatalf("cyclonus contradicts itself about %s -> %s %s", from.key(), to.key(), key)
				}
				if allowed || from.key() == to.key() {
					row += "1"
				} else {
					row += "0"
				}
			}
			rows = append(rows, row)
		}
		text := strings.Join(rows, " ")
		if same := slices.IndexFunc(tables, func(t table) bool { return t.Rows == text }); same >= 0 {
			tables[same].Ports = append(tables[same].Ports, key)
		} else {
			tables = append(tables, table{[]string{key}, text})
		}
	}
	return tables
}

// defaulted is the policy as the API server stores it.
func defaulted(policy *net.NetworkPolicy) *net.NetworkPolicy {
	policy = policy.DeepCopy()
	if len(policy.Spec.PolicyTypes) == 0 {
		policy.Spec.PolicyTypes = []net.PolicyType{net.PolicyTypeIngress}
		if len(policy.Spec.Egress) > 0 {
			policy.Spec.PolicyTypes = append(policy.Spec.PolicyTypes, net.PolicyTypeEgress)
		}
	}
	return policy
}

// check refuses policies about which cyclonus and the specification do not agree.
func (w *world) check(name string, policies []*net.NetworkPolicy) {
	absent := func(selector *meta.LabelSelector, all []map[string]string) bool {
		return selector != nil && slices.ContainsFunc(selector.MatchExpressions, func(r meta.LabelSelectorRequirement) bool {
			return r.Operator == meta.LabelSelectorOpNotIn && slices.ContainsFunc(all, func(l map[string]string) bool {
				_, has := l[r.Key]
				return !has
			})
		})
	}
	namespaces := slices.Collect(maps.Values(w.Namespaces))
	var pods []map[string]string
	for _, p := range w.Pods {
		pods = append(pods, p.Labels)
	}
	for _, p := range policies {
		var peers []net.NetworkPolicyPeer
		for _, rule := range p.Spec.Ingress {
			peers = append(peers, rule.From...)
		}
		for _, rule := range p.Spec.Egress {
			peers = append(peers, rule.To...)
			block := slices.ContainsFunc(rule.To, func(peer net.NetworkPolicyPeer) bool { return peer.IPBlock != nil })
			named := slices.ContainsFunc(rule.Ports, func(port net.NetworkPolicyPort) bool {
				return port.Port != nil && port.Port.StrVal != ""
			})
			if block && named {
				log.Fatalf("%s: a named port and an ipBlock in one egress rule", name)
			}
		}
		differs := absent(&p.Spec.PodSelector, pods)
		for _, peer := range peers {
			differs = differs || absent(peer.PodSelector, pods) || absent(peer.NamespaceSelector, namespaces)
		}
		if differs {
			log.Fatalf("%s: NotIn on labels without the key", name)
		}
	}
}

func (w *world) newCase(name, from string, l *labels, policies []*net.NetworkPolicy) testCase {
	one := testCase{Name: name, From: from, Labels: l, Policies: []policy{}}
	var stored []*net.NetworkPolicy
	for _, p := range policies {
		metadata := map[string]string{"name": p.Name, "namespace": p.Namespace}
		one.Policies = append(one.Policies, policy{"networking.k8s.io/v1", "NetworkPolicy", metadata, &p.Spec})
		stored = append(stored, defaulted(p))
	}
	now := w.with(l)
	now.check(name, stored)
	one.V4 = now.evaluate(stored, func(p pod) string { return p.IPv4 })
	one.V6 = now.evaluate(stored, func(p pod) string { return p.IPv6 })
	if slices.EqualFunc(one.V4, one.V6, func(a, b table) bool { return a.Rows == b.Rows && slices.Equal(a.Ports, b.Ports) }) {
		one.V6 = nil
	}
	return one
}

// state is what the steps of a test case of cyclonus have made so far.
type state struct {
	policies map[string]*net.NetworkPolicy
	labels   labels
	// foreign counts pods and namespaces that the world does not have.
	foreign int
}

func (s *state) act(action *generator.Action) {
	switch {
	case action.CreatePolicy != nil:
		s.policies[action.CreatePolicy.Policy.Namespace+"/"+action.CreatePolicy.Policy.Name] = action.CreatePolicy.Policy
	case action.UpdatePolicy != nil:
		s.policies[action.UpdatePolicy.Policy.Namespace+"/"+action.UpdatePolicy.Policy.Name] = action.UpdatePolicy.Policy
	case action.DeletePolicy != nil:
		delete(s.policies, action.DeletePolicy.Namespace+"/"+action.DeletePolicy.Name)
	case action.SetNamespaceLabels != nil:
		changed := maps.Clone(action.SetNamespaceLabels.Labels)
		changed["kubernetes.io/metadata.name"] = action.SetNamespaceLabels.Namespace
		s.labels.Namespaces[action.SetNamespaceLabels.Namespace] = changed
	case action.SetPodLabels != nil:
		s.labels.Pods[action.SetPodLabels.Namespace+"/"+action.SetPodLabels.Pod] = action.SetPodLabels.Labels
	case action.CreateNamespace != nil, action.CreatePod != nil:
		s.foreign++
	case action.DeleteNamespace != nil, action.DeletePod != nil:
		s.foreign++
	}
}

// generated are the states of cyclonus' own test cases that this world can have, each once.
func (w *world) generated(address string, seen map[string]bool) []testCase {
	var cases []testCase
	for _, test := range generator.NewTestCaseGenerator(true, address, []string{"x", "y", "z"}, nil, nil).GenerateAllTestCases() {
		s := state{map[string]*net.NetworkPolicy{}, labels{map[string]map[string]string{}, map[string]map[string]string{}}, 0}
		for number, step := range test.Steps {
			for _, action := range step.Actions {
				s.act(action)
			}
			if s.foreign > 0 {
				break
			}
			name := test.Description
			if len(test.Steps) > 1 {
				name = fmt.Sprintf("%s, step %d", name, number+1)
			}
			var changed *labels
			if len(s.labels.Namespaces)+len(s.labels.Pods) > 0 {
				changed = &labels{maps.Clone(s.labels.Namespaces), maps.Clone(s.labels.Pods)}
			}
			var policies []*net.NetworkPolicy
			for _, key := range slices.Sorted(maps.Keys(s.policies)) {
				policies = append(policies, s.policies[key])
			}
			one := w.newCase(name, "cyclonus", changed, policies)
			same, err := json.Marshal([]any{one.Policies, one.Labels})
			if err != nil {
				log.Fatal(err)
			}
			if !seen[string(same)] {
				seen[string(same)] = true
				cases = append(cases, one)
			}
		}
	}
	return cases
}

// own are the cases of ours.yaml.
func (w *world) own() []testCase {
	var read []struct {
		Name     string  `json:"name"`
		Labels   *labels `json:"labels"`
		Policies []struct {
			Namespace string                `json:"namespace"`
			Spec      net.NetworkPolicySpec `json:"spec"`
		} `json:"policies"`
	}
	if err := yaml.UnmarshalStrict(ours, &read); err != nil {
		log.Fatalf("ours.yaml: %v", err)
	}
	var cases []testCase
	for _, one := range read {
		var policies []*net.NetworkPolicy
		for i, p := range one.Policies {
			if w.Namespaces[p.Namespace] == nil {
				log.Fatalf("%s: there is no namespace %q", one.Name, p.Namespace)
			}
			metadata := meta.ObjectMeta{Namespace: p.Namespace, Name: fmt.Sprintf("p%d", i+1)}
			policies = append(policies, &net.NetworkPolicy{ObjectMeta: metadata, Spec: p.Spec})
		}
		cases = append(cases, w.newCase(one.Name, "ours", one.Labels, policies))
	}
	return cases
}

func main() {
	log.SetFlags(0)
	w := newWorld()
	seen := map[string]bool{}
	last := w.Pods[len(w.Pods)-1]
	cases := append(w.generated(last.IPv4, seen), w.generated(last.IPv6, seen)...)
	cases = append(cases, w.own()...)
	names := map[string]int{}
	for i := range cases {
		names[cases[i].Name]++
		if count := names[cases[i].Name]; count > 1 {
			cases[i].Name = fmt.Sprintf("%s (%d)", cases[i].Name, count)
		}
	}
	encode := func(value any) string {
		text, err := json.Marshal(value)
		if err != nil {
			log.Fatal(err)
		}
		return string(text)
	}
	out := os.Stdout
	fmt.Fprintf(out, "{\"by\": \"github.com/mattfenwick/cyclonus v0.5.6, package matcher\",\n\"differences\": [\n")
	for i, line := range differences {
		fmt.Fprintf(out, " %s%s\n", encode(line), map[bool]string{true: ",", false: ""}[i+1 < len(differences)])
	}
	fmt.Fprintf(out, "],\n\"world\": %s,\n\"cases\": [\n", encode(w))
	for i, one := range cases {
		fmt.Fprintf(out, "%s%s\n", encode(one), map[bool]string{true: ",", false: ""}[i+1 < len(cases)])
	}
	fmt.Fprintln(out, "]}")
	fmt.Fprintf(os.Stderr, "%d cases\n", len(cases))
}
