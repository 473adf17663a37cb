// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"fmt"

	"github.com/xdslb/xdslb/xds/bootstrap"
)

func ExampleParser_Parse() {
	c, err := bootstrap.Parser{}.Parse("example", []byte(`{
		"xds_servers": [
			{
				"server_uri": "istiod.istio-system.svc:15012",
				"channel_creds": [{"type": "tls", "config": {"ca_certificate_file": "/etc/certs/root.pem"}}],
				"call_creds": [{"type": "jwt_token_file", "config": {"jwt_token_file": "/var/run/secrets/token"}}],
				"server_features": ["xds_v3", "fail_on_data_errors"]
			},
			{"server_uri": "unix:///var/run/xds.sock", "channel_creds": [{"type": "insecure"}]}
		],
		"node": {"id": "client-1", "locality": {"zone": "eu-west-1b"}}
	}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range c.Servers {
		fmt.Println(s)
	}
	fmt.Println(c.Node().GetId(), c.Node().GetUserAgentName())
	// Output:
	// istiod.istio-system.svc:15012 (tls, jwt_token_file, fail_on_data_errors)
	// unix:///var/run/xds.sock (insecure)
	// client-1 xdslb
}

// All mistakes are reported at once; the first is the one to fix first.
func ExampleParser_Parse_errors() {
	_, err := bootstrap.Parser{}.Parse("file /etc/xds.json", []byte(`{
		"xds_servers": [{"server_uri": "xds.example.com:443", "channel_creds": [{"type": "tls", "config": {"refresh_interval": "10m"}}]}],
		"node": {"id": 7}
	}`))
	fmt.Println(err)
	// Output:
	// xdslb: bootstrap: file /etc/xds.json: $.xds_servers[0].channel_creds[0].config.refresh_interval: must be a duration in the JSON format of google.protobuf.Duration (it is "10m"); write seconds, such as "600s" or "0.5s"
	// xdslb: bootstrap: file /etc/xds.json: $.node.id: must be a string, not a number (it is 7); put a string there, between double quotes
}

func ExampleConfig_ListenerName() {
	c, err := bootstrap.Parser{}.Parse("example", []byte(`{
		"xds_servers": [{"server_uri": "xds.example.com:443", "channel_creds": [{"type": "tls"}]}],
		"authorities": {
			"partner": {"xds_servers": [{"server_uri": "xds.partner.example:443", "channel_creds": [{"type": "tls"}]}]}
		}
	}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, authority := range []string{"", "partner"} {
		name, err := c.ListenerName(authority, "greeter:50051")
		if err != nil {
			fmt.Println(err)
			return
		}
		servers, err := c.ServersFor(name)
		fmt.Println(name, servers, err)
	}
	// Output:
	// greeter:50051 [xds.example.com:443 (tls)] <nil>
	// xdstp://partner/envoy.config.listener.v3.Listener/greeter:50051 [xds.partner.example:443 (tls)] <nil>
}
