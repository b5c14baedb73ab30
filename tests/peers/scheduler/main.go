// Asks upstream's own scheduler about one pod in one cluster: one JSON object per line in, one per line out.
//
// The questions are made by control/scheduler/tests/upstream/cases.rs, where our own answers are compared with these.
// Nothing is bound and nothing deleted: the framework of the default profile is asked point by point.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/profile"
)

// question is a cluster, as objects of any kind, and the pod that wants a node.
type question struct {
	Objects []json.RawMessage `json:"objects"`
	Pod     json.RawMessage   `json:"pod"`
}

type refusal struct {
	Plugin     string   `json:"plugin"`
	Reasons    []string `json:"reasons"`
	Resolvable bool     `json:"resolvable"`
}

type candidate struct {
	Victims    []string `json:"victims"`
	Violations int64    `json:"violations"`
}

type answer struct {
	Error string `json:"error,omitempty"`
	// Everywhere is what was refused before any node was looked at.
	Everywhere *refusal `json:"everywhere,omitempty"`
	// Only is null when every node may be looked at.
	Only    []string           `json:"only"`
	Refused map[string]refusal `json:"refused,omitempty"`
	// Scores of each node that fits, by plugin, weighted.
	Scores     map[string]map[string]int64 `json:"scores,omitempty"`
	Message    string                      `json:"message,omitempty"`
	Ineligible string                      `json:"ineligible,omitempty"`
	Candidates map[string]candidate        `json:"candidates,omitempty"`
	// Unhelped are the nodes where no victims help.
	Unhelped map[string]refusal `json:"unhelped,omitempty"`
	Chosen   string             `json:"chosen,omitempty"`
}

func object(text json.RawMessage) (runtime.Object, error) {
	made, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
	return made, err
}

func told(status *fwk.Status) refusal {
	reasons := slices.Clone(status.Reasons())
	return refusal{Plugin: status.Plugin(), Reasons: reasons, Resolvable: status.Code() == fwk.Unschedulable}
}

func refused(status *fwk.Status) bool {
	return status.Code() == fwk.Unschedulable || status.Code() == fwk.UnschedulableAndUnresolvable
}

// asked holds what the steps of one question share.
type asked struct {
	ctx       context.Context
	framework framework.Framework
	nodes     []fwk.NodeInfo
	pod       *core.Pod
	state     fwk.CycleState
	budgets   []*policy.PodDisruptionBudget
}

func answerTo(q *question) (*answer, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	wanted, err := object(q.Pod)
	if err != nil {
		return nil, err
	}
	objects := []runtime.Object{wanted}
	for _, text := range q.Objects {
		made, err := object(text)
		if err != nil {
			return nil, err
		}
		objects = append(objects, made)
	}
	client := fake.NewSimpleClientset(objects...)
	informers := scheduler.NewInformerFactory(client, 0)
	recorders := profile.RecorderFactory(func(string) events.EventRecorderLogger { return &events.FakeRecorder{} })
	made, err := scheduler.New(ctx, client, informers, nil, recorders, scheduler.WithParallelism(1))
	if err != nil {
		return nil, err
	}
	budgets := informers.Policy().V1().PodDisruptionBudgets().Lister()
	informers.Start(ctx.Done())
	informers.WaitForCacheSync(ctx.Done())
	if err := made.WaitForHandlersSync(ctx); err != nil {
		return nil, err
	}
	a := &asked{ctx: ctx, framework: made.Profiles["default-scheduler"], pod: wanted.(*core.Pod), state: framework.NewCycleState()}
	snapshot := a.framework.SnapshotSharedLister().(*cache.Snapshot)
	if err := made.Cache.UpdateSnapshot(klog.Background(), snapshot); err != nil {
		return nil, err
	}
	if a.nodes, err = snapshot.NodeInfos().List(); err != nil {
		return nil, err
	}
	if a.budgets, err = budgets.List(labels.Everything()); err != nil {
		return nil, err
	}
	return a.decide()
}

func (a *asked) decide() (*answer, error) {
	out := &answer{Refused: map[string]refusal{}}
	diagnosis := framework.Diagnosis{NodeToStatus: framework.NewDefaultNodeToStatus()}
	result, status, plugins := a.framework.RunPreFilterPlugins(a.ctx, a.state, a.pod)
	var fit []fwk.NodeInfo
	if refused(status) {
		everywhere := told(status)
		out.Everywhere = &everywhere
		diagnosis.NodeToStatus.SetAbsentNodesStatus(status)
		diagnosis.PreFilterMsg = status.Message()
	} else if !status.IsSuccess() {
		return &answer{Error: status.Message()}, nil
	} else {
		if !result.AllNodes() {
			out.Only = append([]string{}, result.NodeNames.UnsortedList()...)
			slices.Sort(out.Only)
			text := fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", sorted(plugins.UnsortedList()))
			diagnosis.NodeToStatus.SetAbsentNodesStatus(fwk.NewStatus(fwk.UnschedulableAndUnresolvable, text))
		}
		for _, node := range a.nodes {
			if !result.AllNodes() && !result.NodeNames.Has(node.Node().Name) {
				continue
			}
			status := a.framework.RunFilterPluginsWithNominatedPods(a.ctx, a.state, a.pod, node)
			if status.IsSuccess() {
				fit = append(fit, node)
			} else if refused(status) {
				out.Refused[node.Node().Name] = told(status)
				diagnosis.NodeToStatus.Set(node.Node().Name, status)
			} else {
				return &answer{Error: status.Message()}, nil
			}
		}
	}
	if len(fit) > 0 {
		return out, a.score(out, fit)
	}
	a.preempt(out, diagnosis.NodeToStatus)
	fitError := &framework.FitError{Pod: a.pod, NumAllNodes: len(a.nodes), Diagnosis: diagnosis}
	out.Message = fitError.Error()
	return out, nil
}

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}

func (a *asked) score(out *answer, fit []fwk.NodeInfo) error {
	if status := a.framework.RunPreScorePlugins(a.ctx, a.state, a.pod, fit); !status.IsSuccess() {
		return fmt.Errorf("pre-score: %v", status.Message())
	}
	scored, status := a.framework.RunScorePlugins(a.ctx, a.state, a.pod, fit)
	if !status.IsSuccess() {
		return fmt.Errorf("score: %v", status.Message())
	}
	out.Scores = map[string]map[string]int64{}
	for _, node := range scored {
		of := map[string]int64{}
		for _, one := range node.Scores {
			of[one.Name] = one.Score
		}
		out.Scores[node.Name] = of
	}
	return nil
}

func (a *asked) preempt(out *answer, statuses *framework.NodeToStatus) {
	features := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	args := &config.DefaultPreemptionArgs{MinCandidateNodesPercentage: 100, MinCandidateNodesAbsolute: 100}
	plugin, err := defaultpreemption.New(a.ctx, args, a.framework, features)
	if err != nil {
		out.Error = err.Error()
		return
	}
	if ok, why := plugin.PodEligibleToPreemptOthers(a.ctx, a.pod, statuses.Get(a.pod.Status.NominatedNodeName)); !ok {
		out.Ineligible = why
		return
	}
	potential, err := statuses.NodesForStatusCode(a.framework.SnapshotSharedLister().NodeInfos(), fwk.Unschedulable)
	if err != nil || len(potential) == 0 {
		return
	}
	most := int32(len(potential)) + 1
	found, unhelped, err := plugin.Evaluator.DryRunPreemption(a.ctx, a.state, a.pod, potential, a.budgets, 0, most)
	if err != nil {
		out.Error = err.Error()
		return
	}
	out.Candidates, out.Unhelped = map[string]candidate{}, map[string]refusal{}
	unhelped.ForEachExplicitNode(func(name string, status *fwk.Status) { out.Unhelped[name] = told(status) })
	for _, one := range found {
		victims := []string{}
		for _, victim := range one.Victims().Pods {
			victims = append(victims, victim.Name)
		}
		out.Candidates[one.Name()] = candidate{Victims: victims, Violations: one.Victims().NumPDBViolations}
	}
	if best := plugin.Evaluator.SelectCandidate(a.ctx, found); best != nil {
		out.Chosen = best.Name()
	}
}

func main() {
	klog.SetOutput(io.Discard)
	klog.LogToStderr(false)
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	encoder := json.NewEncoder(out)
	for {
		line, err := lines.ReadString('\n')
		if strings.TrimSpace(line) == "" && err != nil {
			return
		}
		var q question
		found := &answer{}
		if failed := json.Unmarshal([]byte(line), &q); failed != nil {
			found.Error = "question: " + failed.Error()
		} else if got, failed := answerTo(&q); failed != nil {
			found.Error = failed.Error()
		} else {
			found = got
		}
		if failed := encoder.Encode(found); failed != nil {
			fmt.Fprintln(os.Stderr, failed)
			os.Exit(1)
		}
	}
}
