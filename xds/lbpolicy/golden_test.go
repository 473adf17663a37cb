// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lbpolicy

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	_ "github.com/cncf/xds/go/udpa/type/v1" // for the JSON of Any
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/load_aware_locality/v3" // an unsupported policy in goldenFile
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/serviceconfig"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata")

// leastRequestStub stands for a program's own balancer, as in A52's example.
type leastRequestStub struct{ balancer.Builder }

func (leastRequestStub) Name() string { return "myorg.MyCustomLeastRequestPolicy" }

func (leastRequestStub) ParseConfig(js json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	var c struct{ ChoiceCount int }
	if err := json.Unmarshal(js, &c); err != nil {
		return nil, err
	}
	if c.ChoiceCount < 2 {
		return nil, errors.New("choiceCount must be at least 2")
	}
	return nil, nil
}

// noParserStub stands for a balancer without configuration.
type noParserStub struct{ balancer.Builder }

func (noParserStub) Name() string { return "myorg.NoParser" }

func TestMain(m *testing.M) {
	balancer.Register(leastRequestStub{})
	balancer.Register(noParserStub{})
	os.Exit(m.Run())
}

// describe lists the kind and the non-zero fields of p.
func describe(p picker.Policy) string {
	text := [...]string{"EDF", "RoundRobin", "RingHash", "Maglev", "LeastRequest", "ClientWRR", "PickFirst", "Custom", "LeastLatency", "Prequal", "Random"}[p.Kind]
	v := reflect.ValueOf(p)
	for i := 1; i < v.NumField(); i++ {
		if f := v.Field(i); !f.IsZero() {
			text += fmt.Sprintf(" %s=%+v", v.Type().Field(i).Name, reflect.Indirect(f))
		}
	}
	return text
}

func describeCustom(p picker.Policy) string {
	if p.Custom == nil {
		return describe(p)
	}
	name, config := p.Custom.Name, p.Custom.Config
	p.Custom = nil
	return fmt.Sprintf("%s %s %s", describe(p), name, config)
}

const goldenFile = "testdata/clusters.txt"

type goldenCase struct {
	name    string
	text    string // of the cluster
	cluster *clusterv3.Cluster
	want    string
}

// goldenClusters reads the cases of goldenFile.
func goldenClusters(t *testing.T) []goldenCase {
	t.Helper()
	data, err := os.ReadFile(goldenFile)
	kit.Must(t, err)
	var cases []goldenCase
	for _, text := range strings.Split(string(data), "\n== ")[1:] {
		name, rest, _ := strings.Cut(text, "\n")
		input, want, _ := strings.Cut(rest, "\n--\n")
		c := new(clusterv3.Cluster)
		if err := protojson.Unmarshal([]byte(input), c); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		cases = append(cases, goldenCase{name, input, c, want})
	}
	return cases
}

// TestClusters converts the clusters of goldenFile.
func TestClusters(t *testing.T) {
	text := "# Clusters and what becomes of them: a case begins with ==, and after -- comes the\n" +
		"# policy or the error. go test -update rewrites what comes after --.\n"
	for _, c := range goldenClusters(t) {
		got := "error: "
		if policy, err := new(Registry).OfCluster(c.cluster); err != nil {
			got += err.Error() + "\n"
		} else {
			got = describeCustom(policy) + "\n"
		}
		if got != c.want && !*update {
			t.Errorf("%s:\ngot  %swant %s", c.name, got, c.want)
		}
		text += "\n== " + c.name + "\n" + c.text + "\n--\n" + got
	}
	if *update {
		kit.Must(t, os.WriteFile(goldenFile, []byte(text), 0o644))
	}
}
