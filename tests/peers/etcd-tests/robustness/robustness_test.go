// Package robustness is etcd's own robustness test of one member that is killed, for an etcd that keeps no write-ahead log of etcd's.
//
// Traffic, faults, the model and what is validated (linearizability, what watches promise, reads of the past) are upstream's. Upstream
// reads from the log which requests were done, and in what order; here the events of the watches tell it: with Kubernetes' traffic every
// event names one request.
package robustness

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/tests/v3/framework/e2e"
	"go.etcd.io/etcd/tests/v3/robustness/client"
	"go.etcd.io/etcd/tests/v3/robustness/failpoint"
	"go.etcd.io/etcd/tests/v3/robustness/identity"
	"go.etcd.io/etcd/tests/v3/robustness/model"
	"go.etcd.io/etcd/tests/v3/robustness/report"
	"go.etcd.io/etcd/tests/v3/robustness/traffic"
	"go.etcd.io/etcd/tests/v3/robustness/validate"
	"go.uber.org/zap"
)

// Around a fault; that upstream's traffic is not slower than so much is no matter here.
const some = 2 * time.Second

func TestMain(m *testing.M) {
	e2e.InitFlags()
	traffic.RequestTimeout = 2 * time.Second
	os.Exit(m.Run())
}

func TestKubernetesTrafficWhileItIsKilled(t *testing.T) {
	run(t, traffic.Kubernetes, client.WatchConfig{})
}

func TestCreatesAndDeletesWhileItIsKilled(t *testing.T) {
	run(t, traffic.KubernetesCreateDelete, client.WatchConfig{})
}

func TestKubernetesTrafficWithRequestedProgress(t *testing.T) {
	run(t, traffic.Kubernetes, client.WatchConfig{RequestProgress: true})
}

func run(t *testing.T, clients traffic.Traffic, watches client.WatchConfig) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	lg := zap.NewNop()
	cluster, err := e2e.NewEtcdProcessCluster(ctx, t, e2e.WithClusterSize(1), e2e.WithWatchProcessNotifyInterval(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, member := range cluster.Procs {
			_ = member.Kill()
		}
		_ = cluster.ConcurrentStop()
	}()
	began, ids := time.Now(), identity.NewIDProvider()
	injected := make(chan report.FailpointInjection, 1)
	go func() {
		defer close(injected)
		var first *report.FailpointReport
		for range 3 {
			time.Sleep(some)
			told, err := failpoint.Inject(ctx, t, lg, cluster, failpoint.KillFailpoint, began, ids)
			if err != nil {
				t.Error(err)
				cancel()
				return
			}
			if first == nil {
				first = told
			}
		}
		time.Sleep(some)
		injected <- first.FailpointInjection
	}()
	newest, collected := make(chan int64, 1), make(chan []report.ClientReport, 1)
	go func() {
		collected <- client.CollectClusterWatchEvents(ctx, t, cluster, newest, watches, began, ids)
	}()
	profile := traffic.LowTraffic.WithoutCompaction()
	profile.MinimalQPS = 0
	reports := traffic.SimulateTraffic(ctx, t, lg, cluster, profile, clients, injected, began, ids)
	newest <- revision(reports)
	close(newest)
	reports = append(reports, <-collected...)
	if t.Failed() {
		return
	}
	done, err := persisted(reports)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d writes were done", len(done))
	validate.ValidateAndReturnVisualize(t, lg, validate.Config{ExpectRevisionUnique: clients.ExpectUniqueRevision()}, reports, done, 5*time.Minute)
}

// The newest revision that a client was told.
func revision(reports []report.ClientReport) (newest int64) {
	for _, one := range reports {
		for _, op := range one.KeyValue {
			newest = max(newest, op.Output.(model.MaybeEtcdResponse).Revision)
		}
	}
	return newest
}

// A write that can be told from every other: a value that is put once, or the deletion of one version of a key.
type write struct {
	key     string
	value   model.ValueOrHash
	version int64
}

// The requests that were done, in the order of their revisions.
func persisted(reports []report.ClientReport) (done []model.EtcdRequest, err error) {
	events, requests := map[int64]model.WatchEvent{}, map[write]model.EtcdRequest{}
	for _, one := range reports {
		for _, watch := range one.Watch {
			for _, response := range watch.Responses {
				for _, event := range response.Events {
					events[event.Revision] = event
				}
			}
		}
		for _, op := range one.KeyValue {
			request := op.Input.(model.EtcdRequest)
			if request.Type != model.Txn {
				continue
			}
			for _, inner := range request.Txn.OperationsOnSuccess {
				switch inner.Type {
				case model.PutOperation:
					requests[write{key: inner.Put.Key, value: inner.Put.Value}] = request
				case model.DeleteOperation:
					requests[write{key: inner.Delete.Key, version: request.Txn.Conditions[0].ExpectedRevision}] = request
				}
			}
		}
	}
	revisions, changed := make([]int64, 0, len(events)), map[string]int64{}
	for at := range events {
		revisions = append(revisions, at)
	}
	slices.Sort(revisions)
	for _, at := range revisions {
		event := events[at]
		wanted := write{key: event.Key, value: event.Value}
		if event.Type == model.DeleteOperation {
			wanted = write{key: event.Key, version: changed[event.Key]}
		}
		request, there := requests[wanted]
		if !there {
			return nil, fmt.Errorf("nobody asked for what was done at revision %d: %+v", at, event)
		}
		changed[event.Key] = at
		done = append(done, request)
	}
	return done, nil
}
