// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package nostock tests package stockmetrics in a program without
// google.golang.org/grpc/xds.
package nostock

import (
	"os/exec"
	"strings"
	"testing"

	"example.com/opentelemetry/stock"
	"github.com/xdslb/xdslb/integrate/stockmetrics"
)

// TestStockNames: the metrics are there under stock's names, both those that grpc-go has
// registered, which come with a policy of its own, and those that it has not.
func TestStockNames(t *testing.T) { stock.Check(t, stockmetrics.Names()) }

// TestWrongPackage: a program that links stock and imports package stockmetrics ends at
// its start, with the metric's name, as documented in the package.
func TestWrongPackage(t *testing.T) {
	out, err := exec.Command("go", "run", "../wrong").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "already registered") {
		t.Errorf("go run ../wrong: %v\n%s", err, out)
	}
}
