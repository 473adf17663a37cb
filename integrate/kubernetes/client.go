// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// options are the options of a server_uri.
type options struct {
	// nodes watches the nodes, for the regions of endpoints.
	nodes bool
}

// parseURI parses kubernetes: and kubernetes:?nodes=true.
func parseURI(uri string) (o options, err error) {
	before, rest, _ := strings.Cut(uri, ":")
	switch {
	case !strings.EqualFold(before, scheme):
	case rest == "", rest == "?nodes=false":
		return o, nil
	case rest == "?nodes=true":
		return options{nodes: true}, nil
	}
	return o, fmt.Errorf("server_uri %q: must be kubernetes: or kubernetes:?nodes=true", uri)
}

// loadConfig returns the configuration of a pod or, outside of a cluster, of kubectl.
// Tests replace it.
var loadConfig = func() (*rest.Config, error) {
	cfg, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		cfg, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	}
	if err != nil {
		return nil, fmt.Errorf("no configuration for the API server: %w", err)
	}
	return cfg, nil
}

// clients are the clients of the two API groups in use. The clientset of client-go would
// add all groups to the program.
type clients struct {
	core, discovery rest.Interface
}

func newClients(cfg *rest.Config) (c clients, err error) {
	types := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme} {
		if err := add(types); err != nil {
			return c, err
		}
	}
	metav1.AddToGroupVersion(types, schema.GroupVersion{Version: "v1"})
	codecs := serializer.NewCodecFactory(types)
	client := func(gv schema.GroupVersion, path string) (rest.Interface, error) {
		cfg := rest.CopyConfig(cfg)
		cfg.GroupVersion, cfg.APIPath = &gv, path
		cfg.NegotiatedSerializer = codecs.WithoutConversion()
		cfg.UserAgent = "xdslb"
		cfg.QPS = -1 // informers have backoffs
		return rest.RESTClientFor(cfg)
	}
	if c.core, err = client(corev1.SchemeGroupVersion, "/api"); err == nil {
		c.discovery, err = client(discoveryv1.SchemeGroupVersion, "/apis")
	}
	return c, err
}
