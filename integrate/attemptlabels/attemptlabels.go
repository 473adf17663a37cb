// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package attemptlabels provides the labels grpc.lb.locality and grpc.lb.backend_service of
// gRPC's per-attempt metrics, such as grpc.client.attempt.duration (A78, A89), for channels of
// this module. Without it the labels are empty. A program imports it for its side effect, and
// lists the labels in the OptionalLabels of gRPC's OpenTelemetry plugin:
//
//	import _ "github.com/xdslb/xdslb/integrate/attemptlabels"
//
// The cluster is the one to which the endpoint belongs, below any aggregate cluster. Attempts
// that end without an endpoint have no labels. Labels from the metadata of clusters (csm.*) are
// not supported.
//
// # Cost
//
// Each pick searches the RPC's context, which takes longer the more values the context has. If
// a telemetry plugin uses the labels, they are copied, with two allocations.
// google.golang.org/grpc/xds has the same cost. Without the import picks have no such cost.
//
// # Caveat
//
// gRPC has no API to set these labels: telemetry.NewContextWithLabelCallback is for readers,
// and the setter is internal. This package calls the callbacks that it finds in a context under
// the key that NewContextWithLabelCallback uses. It does not use unsafe or linkname, but it
// depends on an implementation detail of gRPC, which may change. So the package checks at
// program start whether this works with the linked version of gRPC. If not, it logs an error
// and leaves the labels empty, as without the import.
package attemptlabels

import (
	"context"
	"maps"

	"google.golang.org/grpc/experimental/stats/telemetry"
	"google.golang.org/grpc/grpclog"

	_ "github.com/xdslb/xdslb/integrate" // it calls the setter
	"github.com/xdslb/xdslb/integrate/internal/metric"
)

func init() {
	if set := setter(telemetry.NewContextWithLabelCallback); works(set) {
		metric.UpdateLabels = set
	} else {
		grpclog.Component("xdslb").Error("labels grpc.lb.locality and grpc.lb.backend_service are disabled: this version of grpc-go is not supported")
	}
}

// setter returns a function that calls the callbacks of a context, in the order in which
// register added them, or nil. F is a gRPC type without an exported name.
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
		labels = maps.Clone(labels) // callbacks may retain or modify them
		for _, call := range callbacks {
			call(labels)
		}
	}
}

// keySpy is a context without values that records the last requested key.
type keySpy struct {
	context.Context
	key any
}

// Value implements context.Context.
func (k *keySpy) Value(key any) any {
	k.key = key
	return nil
}

// works reports whether a setter reaches two callbacks of a context with the correct labels.
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
