// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package attemptlabels fills in the labels grpc.lb.locality and grpc.lb.backend_service
// of gRPC's per-attempt metrics, such as grpc.client.attempt.duration (A78, A89), for
// channels of this module. Otherwise they are there and empty. A program imports it for
// that effect, and names the labels in the OptionalLabels of gRPC's OpenTelemetry plugin:
//
//	import _ "github.com/xdslb/xdslb/integrate/attemptlabels"
//
// The cluster is the one that the endpoint belongs to, below any aggregate cluster.
// Attempts that end without an endpoint have no labels. Labels from the metadata of
// clusters (csm.*) are not supported.
//
// # Cost
//
// Each pick searches the RPC's context, which takes longer the more values that has; and
// if something wants the labels, they are copied, with two allocations. That is what
// google.golang.org/grpc/xds does as well. Without the import a pick does nothing of it.
//
// # Caveat
//
// gRPC has no API to set these labels: telemetry.NewContextWithLabelCallback is for those
// who read them, and the setter is internal. This package calls the callbacks that it
// finds in a context under the key by which NewContextWithLabelCallback looks for them.
// That is no use of unsafe or of linkname, but of how gRPC is made, which may change. So
// the package tries it out when the program starts. If it does not work with the gRPC
// that is linked, it logs an error and leaves the labels empty, as without it.
package attemptlabels

import (
	"context"
	"maps"

	"google.golang.org/grpc/experimental/stats/telemetry"
	"google.golang.org/grpc/grpclog"

	_ "github.com/xdslb/xdslb/integrate" // which calls the setter
	"github.com/xdslb/xdslb/integrate/internal/metric"
)

func init() {
	if set := setter(telemetry.NewContextWithLabelCallback); works(set) {
		metric.UpdateLabels = set
	} else {
		grpclog.Component("xdslb").Error("The labels grpc.lb.locality and grpc.lb.backend_service of attempts stay empty: this version of grpc-go keeps their callbacks elsewhere.")
	}
}

// setter returns a function that calls the callbacks of a context, in the order in which
// register has added them, or nil. F is a type of gRPC's that has no public name.
func setter[F ~func(map[string]string)](register func(context.Context, F) context.Context) func(context.Context, map[string]string) {
	k := &keySpy{Context: context.Background()}
	register(k, func(map[string]string) {})
	if k.key == nil {
		return nil
	}
	key := k.key
	return func(ctx context.Context, labels map[string]string) {
		callbacks, _ := ctx.Value(key).([]F)
		if len(callbacks) == 0 {
			return
		}
		labels = maps.Clone(labels) // callbacks may keep or change them
		for _, call := range callbacks {
			call(labels)
		}
	}
}

// keySpy is a context without values that remembers what it was asked for last.
type keySpy struct {
	context.Context
	key any
}

// Value implements context.Context.
func (k *keySpy) Value(key any) any {
	k.key = key
	return nil
}

// works reports whether a setter reaches two callbacks of a context, and what it sets.
func works(set func(context.Context, map[string]string)) bool {
	if set == nil {
		return false
	}
	got := 0
	count := func(labels map[string]string) {
		if labels["label"] == "value" {
			got++
		}
	}
	ctx := telemetry.NewContextWithLabelCallback(context.Background(), count)
	ctx = telemetry.NewContextWithLabelCallback(ctx, count)
	set(ctx, map[string]string{"label": "value"})
	return got == 2
}
