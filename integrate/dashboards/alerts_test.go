// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package dashboards

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// causes has series with the cause of each alert. In Prometheus' notation, "_x60" are 60 minutes without
// samples, "0x60" is 0 for an hour, and "1+2x60" grows by 2 a minute.
var causes = map[string][]string{
	"XdsConfigurationRejected": {
		`xdslb_xds_client_resource_updates_invalid_total{instance="a",grpc_xds_server="cp",grpc_xds_resource_type="ClusterResource",grpc_target="xds:///shop"} 0x90 1x100`,
		// The first scrape of the process has the event already.
		`xdslb_xds_client_resource_updates_invalid_total{instance="a",grpc_xds_server="cp",grpc_xds_resource_type="ClusterResource",grpc_target="xds:///shop"} _x90 1x100`,
	},
	"XdsResponsesRejected": {
		`xdslb_xds_client_nacks_total{instance="a",grpc_xds_server="cp",grpc_xds_resource_type="ClusterResource"} 0x90 1x100`,
		`xdslb_xds_client_nacks_total{instance="a",grpc_xds_server="cp",grpc_xds_resource_type="ClusterResource"} _x90 1x100`,
		`xdslb_xds_client_nacks_total{instance="a",grpc_xds_server="cp",grpc_xds_resource_type="ClusterResource"} 3x90 0x20 1x100`,
	},
	"XdsControlPlaneUnreachable": {
		`xdslb_xds_client_connected{instance="a",grpc_xds_server="cp",grpc_target="xds:///shop"} 1x90 0x10 1x100`,
	},
	"XdsConfigurationStale": {
		`xdslb_xds_client_resources{instance="a",grpc_xds_cache_state="nacked_but_cached",grpc_xds_resource_type="ClusterResource",grpc_target="xds:///shop"} _x90 1x10`,
	},
	"XdsPriorityFailed": {
		`xdslb_lb_priority_changes_total{instance="a",grpc_target="xds:///shop",grpc_lb_backend_service="a",xdslb_direction="down"} 0x90 1x100`,
		`xdslb_lb_priority_changes_total{instance="a",grpc_target="xds:///shop",grpc_lb_backend_service="a",xdslb_direction="down"} _x90 1x100`,
	},
	"XdsNoEndpointReachable": {
		`xdslb_lb_priority{instance="a",grpc_target="xds:///shop",grpc_lb_backend_service="a"} 0x90 -1x5 0x100`,
	},
	"XdsConnectionsFail": {
		`xdslb_lb_connections_failed_total{instance="a",grpc_target="xds:///shop",grpc_lb_backend_service="a"} 0x90 0+10x30`,
	},
	"XdsEndpointsEjected": {
		`xdslb_lb_outlier_detection_ejections_enforced_total{instance="a",grpc_target="xds:///shop",grpc_lb_outlier_detection_detection_method="consecutive_5xx"} 0x90 1x6 2x6 3x6 4x100`,
		`xdslb_lb_outlier_detection_ejections_enforced_total{instance="a",grpc_target="xds:///shop",grpc_lb_outlier_detection_detection_method="consecutive_5xx"} _x90 1x6 2x6 3x6 4x100`,
	},
	"XdsRPCsRejectedByCircuitBreaker": {
		`xdslb_lb_breaker_rejections_total{instance="a",grpc_lb_backend_service="a"} 0x90 0+50x30`,
	},
	"XdsNoRoute": {
		`xdslb_lb_no_route_total{instance="a",grpc_target="xds:///shop"} 0x90 1x100`,
		`xdslb_lb_no_route_total{instance="a",grpc_target="xds:///shop"} _x90 1x100`,
	},
	"XdsRollbackLosesRPCs": {
		`xdslb_client_rollback_losses{instance="a",grpc_target="xds:///shop"} 0x90 1x100`,
	},
	"XdsChannelsHandedOver": {
		`xdslb_client_channels_handed_over{instance="a",grpc_target="xds:///shop",xdslb_variable="XDSLB_DISABLE"} 2x200`,
	},
	"XdsChannelsNotHandedOver": {
		`xdslb_client_channels_not_handed_over{instance="a",grpc_target="xds:///shop",xdslb_variable="XDSLB_DISABLE"} 0x90 2x10`,
	},
	"XdsChannelsWithoutInterceptors": {
		`xdslb_client_channels_without_interceptors{instance="a",grpc_target="xds:///shop"} 0x90 1x30`,
	},
}

// shipped has the files of rules, with a function that translates the names of series in a text, and reports
// whether the file has all of them.
func shipped(t *testing.T) map[string]func(string) (string, bool) {
	t.Helper()
	return map[string]func(string) (string, bool){
		rules:      func(text string) (string, bool) { return text, true },
		stockRules: stockNames(t, instruments(t)),
	}
}

// TestAlertsFire checks for both files that each rule fires for its cause, and that the other rules do not fire
// for it. A cause may come before the first scrape of a process. The rules for stock's names are those whose
// causes have series there.
func TestAlertsFire(t *testing.T) {
	for file, renamed := range shipped(t) {
		has := map[string]bool{}
		for _, r := range accepted(t, file) {
			has[r.Alert] = true
		}
		for _, r := range accepted(t, rules) {
			if causes[r.Alert] == nil {
				t.Errorf("alert %s has no cause in the test", r.Alert)
			}
			for _, cause := range causes[r.Alert] {
				series, ok := renamed(cause)
				if ok != has[r.Alert] {
					t.Errorf("%s: alert %s is in the file: %v, and its cause has a series: %v", file, r.Alert, has[r.Alert], ok)
				}
				if !ok {
					continue
				}
				if fires := firing(t, file, series); !fires[r.Alert] || len(fires) != 1 {
					t.Errorf("%s: alert %s: %v fire for %s", file, r.Alert, fires, series)
				}
			}
		}
	}
}

// TestHealthyRestarts checks that no rule fires for a healthy fleet: a process that runs for hours, one
// that starts later, with a new name as in Kubernetes, one that restarts and begins again with the same name,
// and one that is not scraped for a while. Their counters of past events do not grow.
func TestHealthyRestarts(t *testing.T) {
	var series []string
	for instance, form := range map[string]struct{ past, state, age string }{
		"old":       {"3x240", "%[1]sx240", "0+60x240"},
		"new":       {"_x90 0x150", "_x90 %[1]sx150", "_x90 0+60x150"},
		"restarted": {"3x90 0x150", "%[1]sx90 %[1]sx150", "0+60x90 0+60x150"},
		"gap":       {"3x90 _x30 3x120", "%[1]sx90 _x30 %[1]sx120", "0+60x90 _x30 7260+60x120"},
	} {
		add := func(name, values, labels string) {
			series = append(series, fmt.Sprintf(`%s{instance=%q%s} %s`, name, instance, labels, values))
		}
		counts := `,grpc_xds_server="cp",grpc_xds_resource_type="ClusterResource",grpc_target="xds:///shop",grpc_lb_backend_service="a"`
		add("xdslb_xds_client_resource_updates_invalid_total", form.past, counts)
		add("xdslb_xds_client_nacks_total", form.past, counts)
		add("xdslb_lb_priority_changes_total", form.past, counts+`,xdslb_direction="down"`)
		add("xdslb_lb_connections_failed_total", form.past, counts)
		add("xdslb_lb_outlier_detection_ejections_enforced_total", form.past, counts)
		add("xdslb_lb_breaker_rejections_total", form.past, counts)
		add("xdslb_lb_no_route_total", form.past, counts)
		state := func(v string) string { return fmt.Sprintf(form.state, v) }
		add("xdslb_xds_client_connected", state("1"), counts)
		add("xdslb_xds_client_resources", state("4"), counts+`,grpc_xds_cache_state="acked"`)
		add("xdslb_xds_client_resource_age_seconds", form.age, counts+`,xdslb_resource_name="a"`)
		add("xdslb_lb_priority", state("0"), counts)
		for _, name := range []string{"rollback_losses", "channels_handed_over", "channels_not_handed_over", "channels_without_interceptors"} {
			add("xdslb_client_"+name, state("0"), counts)
		}
	}
	for file, renamed := range shipped(t) {
		var known []string
		for _, one := range series {
			if one, ok := renamed(one); ok {
				known = append(known, one)
			}
		}
		for _, r := range accepted(t, file) {
			if !slices.ContainsFunc(known, func(one string) bool { return strings.Contains(r.Expr, one[:strings.Index(one, "{")]) }) {
				t.Errorf("%s: the healthy fleet has no series of alert %s", file, r.Alert)
			}
		}
		if fires := firing(t, file, known...); len(fires) > 0 {
			t.Errorf("%s: %v fire for a healthy fleet", file, fires)
		}
	}
}

// TestRunbook checks that the runbook has a section for each rule, with a first command.
func TestRunbook(t *testing.T) {
	text := read(t, "../docs/runbook.md")
	for _, r := range accepted(t, rules) {
		_, section, ok := strings.Cut(text, "\n### "+r.Alert+"\n")
		section, _, _ = strings.Cut(section, "\n### ")
		if !ok || !strings.Contains(section, "**Meaning.**") || !strings.Contains(section, "**Next.**") || !regexp.MustCompile(`(?m)^    xdslb |^    kubectl `).MatchString(section) {
			t.Errorf("the runbook has no section for %s with a command, its meaning and the next step", r.Alert)
		}
	}
}
