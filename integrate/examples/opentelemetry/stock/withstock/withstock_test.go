// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package withstock tests package stockmetrics/withstock in a program with
// google.golang.org/grpc/xds.
package withstock

import (
	"testing"

	_ "google.golang.org/grpc/xds"

	"example.com/opentelemetry/stock"
	"github.com/xdslb/xdslb/integrate/stockmetrics/withstock"
)

// TestStockNames: the metrics are there under stock's names, which stock has registered.
func TestStockNames(t *testing.T) { stock.Check(t, withstock.Names()) }
