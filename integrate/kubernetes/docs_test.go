// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// TestPermissions checks that the roles of kubernetes.md permit the requests of the client, and
// nothing else. A list and a watch are needed for API servers with and without streamed lists.
func TestPermissions(t *testing.T) {
	page, err := os.ReadFile("../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	permitted := map[string]bool{}
	for _, m := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllSubmatch(page, -1) {
		for _, text := range bytes.Split(m[1], []byte("\n---\n")) {
			var role rbacv1.ClusterRole // a Role has the same rules
			if err := yaml.Unmarshal(text, &role); err != nil {
				t.Fatal(err)
			}
			for _, rule := range role.Rules {
				for _, r := range rule.Resources {
					for _, verb := range rule.Verbs {
						permitted[verb+" "+r] = len(rule.APIGroups) == 1 && rule.APIGroups[0] == map[string]string{"endpointslices": "discovery.k8s.io"}[r]
					}
				}
			}
		}
	}
	inBubble(t, options{nodes: true}, func(t *testing.T, api *apiServer, out *recorder) {
		api.plain = true
		api.apply(grpcService("shop", "orders"), orders("a", "10.0.0.1"))
		out.subscribe(ordersGRPC)
		after(latestStart)
		out.want(t, ordersGRPC, "10.0.0.1")
		if !maps.Equal(permitted, api.verbs) {
			t.Errorf("the page permits %q, the client requests %q", slices.Sorted(maps.Keys(permitted)), slices.Sorted(maps.Keys(api.verbs)))
		}
	})
}
