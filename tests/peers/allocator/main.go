// Allocates claims with upstream's own structured allocator: one JSON object per line in, one per line out.
//
// The questions are made by control/scheduler/tests/allocator/cases.rs, where our own answers are compared with these.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"sync"

	"github.com/go-logr/logr"
	core "k8s.io/api/core/v1"
	api "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// features are those that Kubernetes 1.36 has unless told otherwise.
var features = structured.Features{
	AdminAccess:            true,
	ConsumableCapacity:     true,
	DeviceBindingAndStatus: true,
	DeviceTaints:           true,
	PartitionableDevices:   true,
	PrioritizedList:        true,
}

type question struct {
	Node    core.Node            `json:"node"`
	Slices  []*api.ResourceSlice `json:"slices"`
	Classes []*api.DeviceClass   `json:"classes"`
	Claims  []*api.ResourceClaim `json:"claims"`
	// Allocated is what other claims have.
	Allocated []api.AllocationResult `json:"allocated"`
}

type answer struct {
	// Results is null if the claims cannot be allocated.
	Results []api.AllocationResult `json:"results"`
	Error   string                 `json:"error,omitempty"`
	// Node says that the error is about the one node.
	Node bool `json:"node,omitempty"`
	// Steps is how often the search went on.
	Steps int64 `json:"steps"`
}

type classes []*api.DeviceClass

func (c classes) List() ([]*api.DeviceClass, error) { return c, nil }

func (c classes) Get(name string) (*api.DeviceClass, error) {
	for _, class := range c {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: "resource.k8s.io", Resource: "deviceclass"}, name)
}

// state gathers what is allocated as the scheduler does.
func state(allocated []api.AllocationResult) structured.AllocatedState {
	out := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, allocation := range allocated {
		for _, result := range allocation.Devices.Results {
			id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
			switch {
			case ptr.Deref(result.AdminAccess, false):
			case result.ShareID == nil:
				out.AllocatedDevices.Insert(id)
			default:
				out.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, result.ShareID))
				if result.ConsumedCapacity != nil {
					out.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, result.ConsumedCapacity))
				}
			}
		}
	}
	return out
}

func allocate(q *question, cache *cel.Cache) (answer, error) {
	ctx := context.Background()
	allocator, err := structured.NewAllocator(ctx, features, state(q.Allocated), classes(q.Classes), q.Slices, cache)
	if err != nil {
		return answer{}, err
	}
	var out answer
	out.Results, err = allocator.Allocate(ctx, &q.Node, q.Claims)
	if err != nil {
		out.Error = err.Error()
		out.Node = errors.Is(err, structured.ErrFailedAllocationOnNode)
	}
	// Which share is called how is left to chance.
	for _, result := range out.Results {
		for i := range result.Devices.Results {
			if result.Devices.Results[i].ShareID != nil {
				result.Devices.Results[i].ShareID = ptr.To(types.UID("share"))
			}
		}
	}
	// The type of the statistics has no name outside of the package.
	stats := reflect.ValueOf(allocator).MethodByName("GetStats").Call(nil)[0]
	out.Steps = stats.FieldByName("NumAllocateOneInvocations").Int()
	return out, nil
}

func reply(line string, cache *cel.Cache) (string, error) {
	var q question
	if err := json.Unmarshal([]byte(line), &q); err != nil {
		return "", err
	}
	a, err := allocate(&q, cache)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(a)
	return string(text), err
}

func main() {
	klog.SetLogger(logr.Discard())
	cache := cel.NewCache(1000, cel.Features{EnableConsumableCapacity: true})
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<24)
	var lines []string
	for in.Scan() {
		lines = append(lines, in.Text())
	}
	answers := make([]string, len(lines))
	problems := make([]error, len(lines))
	var group sync.WaitGroup
	for worker := range runtime.NumCPU() {
		group.Go(func() {
			for i := worker; i < len(lines); i += runtime.NumCPU() {
				answers[i], problems[i] = reply(lines[i], cache)
			}
		})
	}
	group.Wait()
	if err := errors.Join(append(problems, in.Err())...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for _, line := range answers {
		fmt.Fprintln(out, line)
	}
}
