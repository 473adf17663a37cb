// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package attemptlabels

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc/experimental/stats/telemetry"

	"github.com/xdslb/xdslb/integrate/internal/metric"
)

// TestWorks: it works with the grpc-go of this module.
func TestWorks(t *testing.T) {
	if metric.UpdateLabels == nil {
		t.Error("the labels of attempts cannot be set")
	}
}

// TestOtherGRPC: a grpc-go that keeps callbacks elsewhere, or as something else, is
// noticed.
func TestOtherGRPC(t *testing.T) {
	type callback func(map[string]string)
	type key struct{}
	for name, register := range map[string]func(context.Context, callback) context.Context{
		"no look-up": func(ctx context.Context, _ callback) context.Context { return ctx },
		"another type": func(ctx context.Context, c callback) context.Context {
			_ = ctx.Value(key{})
			return context.WithValue(ctx, key{}, c)
		},
	} {
		if works(setter(register)) {
			t.Errorf("%s: seems to work", name)
		}
	}
}

// TestOwnCopy checks that a callback that modifies the labels does not affect the next RPC.
func TestOwnCopy(t *testing.T) {
	labels := map[string]string{"a": "b"}
	ctx := telemetry.NewContextWithLabelCallback(context.Background(), func(m map[string]string) { m["a"] = "c" })
	metric.UpdateLabels(ctx, labels)
	if labels["a"] != "b" {
		t.Errorf("labels are %v", labels)
	}
}

// BenchmarkUpdate measures the cost of labels for a pick, by the number of values in the
// context and whether the labels are used.
func BenchmarkUpdate(b *testing.B) {
	type key int
	labels := map[string]string{"grpc.lb.locality": `{region="r", zone="z", sub_zone=""}`, "grpc.lb.backend_service": "cluster"}
	for _, wanted := range []bool{false, true} {
		b.Run(fmt.Sprintf("values=8/wanted=%v", wanted), func(b *testing.B) {
			ctx := context.Background()
			if wanted {
				ctx = telemetry.NewContextWithLabelCallback(ctx, func(map[string]string) {})
			}
			for i := range 8 {
				ctx = context.WithValue(ctx, key(i), i)
			}
			b.ReportAllocs()
			for b.Loop() {
				metric.UpdateLabels(ctx, labels)
			}
		})
	}
}
