// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/xdslb/xdslb/picker"
)

var newCommand = command{
	name: "new", args: "-dns HOST:PORT", summary: "write a bootstrap and resources for a DNS name",
	about: "Writes bootstrap.json and resources.json, with which a channel needs no control\n" +
		"plane: each address of a DNS name is an endpoint, new endpoints start slowly, and\n" +
		"the name is looked up every 5 s. The target has the name of the DNS name. Edit\n" +
		"resources.json at any time: a change is in use within two seconds, without a\n" +
		"restart. Existing files are kept.",
	example: "xdslb new -dns orders.shop.svc:8080 -outliers -retries\n" +
		"xdslb check -b bootstrap.json xds:///orders.shop.svc:8080",
	flags: func(e *env, fs *flag.FlagSet) func([]string) (bool, error) {
		dns := fs.String("dns", "", "`host:port` of the servers; each address of the host is an endpoint")
		dir := fs.String("dir", ".", "`folder` of the files")
		policy := fs.String("policy", "least_latency", "`policy`: least_latency, least_request or round_robin")
		outliers := fs.Bool("outliers", false, "eject endpoints that fail five RPCs in succession")
		retries := fs.Bool("retries", false, "retry RPCs that fail with UNAVAILABLE at other endpoints, within a budget")
		return func(args []string) (bool, error) {
			if err := want(args); err != nil {
				return false, err
			}
			if *dns == "" {
				return false, usageError("missing flag: -dns")
			}
			resources, err := newResources(*dns, *policy, *outliers, *retries)
			if err != nil {
				return false, usageError(err.Error())
			}
			host, _ := os.Hostname()
			files := map[string]any{
				"resources.json": resources,
				"bootstrap.json": object{"xds_servers": []any{object{"server_uri": "file:resources.json"}}, "node": object{"id": host}},
			}
			for _, name := range []string{"resources.json", "bootstrap.json"} {
				text, _ := json.MarshalIndent(files[name], "", "  ") // it has texts and numbers only
				name = filepath.Join(*dir, name)
				f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
				if err != nil {
					return false, err
				}
				_, err = f.Write(append(text, '\n'))
				if closed := f.Close(); err == nil {
					err = closed
				}
				if err != nil {
					return false, err
				}
				fmt.Fprintf(e.stdout, "wrote %s\n", name)
			}
			fmt.Fprintf(e.stdout, "Set GRPC_XDS_BOOTSTRAP=%s\nand make a channel with integrate.NewClient to\nxds:///%s\n", filepath.Join(*dir, "bootstrap.json"), *dns)
			return false, nil
		}
	},
}

type object = map[string]any

// newResources returns the resources of a target with the name of a host and port.
func newResources(target, policy string, outliers, retries bool) (any, error) {
	host, text, err := net.SplitHostPort(target)
	if err != nil {
		return nil, fmt.Errorf("-dns: %w", err)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if _, ok := picker.NameAddr(host, 0); err != nil || port == 0 || !ok && net.ParseIP(host) == nil {
		return nil, fmt.Errorf("-dns %q: want HOST:PORT", target)
	}
	const types = "type.googleapis.com/"
	typed := func(name, typ string, fields object) object {
		config := object{"@type": types + typ}
		for k, v := range fields {
			config[k] = v
		}
		return object{"name": name, "typed_config": config}
	}
	builtin := func(name, message string, fields object) object {
		return object{"typed_extension_config": typed(name, "envoy.extensions.load_balancing_policies."+name+".v3."+message, fields)}
	}
	slow := object{"slow_start_config": object{"slow_start_window": "10s"}}
	roundRobin := builtin("round_robin", "RoundRobin", slow)
	policies := []any{roundRobin}
	switch policy {
	case "round_robin":
	case "least_request":
		policies = []any{builtin("least_request", "LeastRequest", slow)}
	case "least_latency":
		own := object{"typed_extension_config": typed("least_latency", "xds.type.v3.TypedStruct", object{"type_url": types + "xdslb_least_latency", "value": slow})}
		policies = []any{own, roundRobin} // for clients without it
	default:
		return nil, fmt.Errorf("-policy %q: want least_latency, least_request or round_robin", policy)
	}
	cluster := object{
		"@type": types + "envoy.config.cluster.v3.Cluster", "name": target, "type": "STRICT_DNS", "dns_refresh_rate": "5s",
		"load_assignment": object{"cluster_name": target, "endpoints": []any{object{"lb_endpoints": []any{object{"endpoint": object{
			"address": object{"socket_address": object{"address": host, "port_value": port}}}}}}}},
		"load_balancing_policy": object{"policies": policies},
	}
	action := object{"cluster": target}
	if outliers {
		cluster["outlier_detection"] = object{
			"consecutive_5xx": 5, "interval": "10s", "base_ejection_time": "30s", "max_ejection_percent": 10,
		}
	}
	if retries {
		cluster["circuit_breakers"] = object{"thresholds": []any{object{"retry_budget": object{"budget_percent": object{"value": 20}, "min_retry_concurrency": 3}}}}
		action["retry_policy"] = object{
			"retry_on": "unavailable", "num_retries": 2, "retry_back_off": object{"base_interval": "0.025s", "max_interval": "0.250s"},
			"retry_host_predicate": []any{typed("envoy.retry_host_predicates.previous_hosts", "envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate", nil)},
		}
	}
	const filters = "envoy.extensions.filters."
	listener := object{
		"@type": types + "envoy.config.listener.v3.Listener", "name": target,
		"api_listener": object{"api_listener": object{
			"@type":        types + filters + "network.http_connection_manager.v3.HttpConnectionManager",
			"http_filters": []any{typed("router", filters+"http.router.v3.Router", nil)},
			"route_config": object{"name": target, "virtual_hosts": []any{object{
				"name": target, "domains": []any{"*"}, "routes": []any{object{"match": object{"prefix": ""}, "route": action}},
			}}},
		}},
	}
	return object{"resources": []any{listener, cluster}}, nil
}
