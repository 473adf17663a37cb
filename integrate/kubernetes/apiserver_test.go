// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apiServer implements the list and watch protocol of Kubernetes for services, slices and
// nodes: versions, streamed lists, bookmarks and 410 Gone.
type apiServer struct {
	mu       sync.Mutex
	version  int
	objects  map[string]json.RawMessage // by path and name
	events   []apiEvent
	oldest   int           // watches from before this version get 410 Gone
	changed  chan struct{} // closed at the next event or cut
	cuts     int           // connections of watches have been broken so often
	plain    bool          // reject streamed lists
	denied   map[string]bool
	requests []string        // path and query of interest
	verbs    map[string]bool // of RBAC, with resources
}

type apiEvent struct {
	path    string
	version int
	typ     string
	object  json.RawMessage
}

func newAPIServer() *apiServer {
	return &apiServer{version: 1, objects: map[string]json.RawMessage{}, changed: make(chan struct{}), denied: map[string]bool{}, verbs: map[string]bool{}}
}

// serve starts the server, which stops at the end of the test.
func (a *apiServer) serve(t *testing.T, l net.Listener) {
	server := &http.Server{Handler: a}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close(); <-done })
}

// pathOf returns the path of an object, whose kind and version it sets.
func pathOf(obj metav1.Object) string {
	switch obj := obj.(type) {
	case *corev1.Service:
		obj.Kind, obj.APIVersion = "Service", "v1"
		return "/api/v1/namespaces/" + obj.GetNamespace() + "/services"
	case *discoveryv1.EndpointSlice:
		obj.Kind, obj.APIVersion = "EndpointSlice", "discovery.k8s.io/v1"
		return "/apis/discovery.k8s.io/v1/namespaces/" + obj.GetNamespace() + "/endpointslices"
	case *corev1.Node:
		obj.Kind, obj.APIVersion = "Node", "v1"
	}
	return "/api/v1/nodes"
}

// apply adds or replaces objects.
func (a *apiServer) apply(objects ...metav1.Object) { a.write(true, objects) }

// remove deletes objects.
func (a *apiServer) remove(objects ...metav1.Object) { a.write(false, objects) }

func (a *apiServer) write(keep bool, objects []metav1.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, obj := range objects {
		a.version++
		obj.SetResourceVersion(strconv.Itoa(a.version))
		path := pathOf(obj)
		raw, err := json.Marshal(obj)
		if err != nil {
			panic(err)
		}
		key, typ := path+" "+obj.GetName(), "DELETED"
		if keep {
			typ = "ADDED"
			if a.objects[key] != nil {
				typ = "MODIFIED"
			}
			a.objects[key] = raw
		} else {
			delete(a.objects, key)
		}
		a.events = append(a.events, apiEvent{path, a.version, typ, raw})
	}
	a.notify()
}

func (a *apiServer) notify() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// bookmark sends a bookmark with the current version to the watches of a path.
func (a *apiServer) bookmark(path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	a.events = append(a.events, apiEvent{path, a.version, "BOOKMARK", bookmarkObject(path, a.version, nil)})
	a.notify()
}

// cut breaks the connections of all watches, and optionally forgets all events.
func (a *apiServer) cut(forget bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cuts++
	if forget {
		a.version++
		a.oldest, a.events = a.version, nil
	}
	a.notify()
}

// deny makes later requests for a path fail with 403, or succeed again.
func (a *apiServer) deny(path string, denied bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.denied[path] = denied
}

// take returns the requests since the last call.
func (a *apiServer) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := a.requests
	a.requests = nil
	slices.Sort(list)
	return list
}

func kindAndVersion(path string) (kind, version string) {
	switch {
	case strings.HasSuffix(path, "/services"):
		return "Service", "v1"
	case strings.HasSuffix(path, "/endpointslices"):
		return "EndpointSlice", "discovery.k8s.io/v1"
	}
	return "Node", "v1"
}

func bookmarkObject(path string, version int, annotations map[string]string) json.RawMessage {
	kind, api := kindAndVersion(path)
	raw, _ := json.Marshal(map[string]any{"kind": kind, "apiVersion": api,
		"metadata": metav1.ObjectMeta{ResourceVersion: strconv.Itoa(version), Annotations: annotations}})
	return raw
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, q := r.URL.Path, r.URL.Query()
	a.mu.Lock()
	streamed := q.Get("sendInitialEvents") == "true"
	resource, verb, what := path[strings.LastIndex(path, "/")+1:], "list", "list"
	if q.Get("watch") != "" {
		verb, what = "watch", "watch "+q.Get("resourceVersion")
	}
	if streamed {
		what = "streamed list"
	}
	a.verbs[verb+" "+resource] = true
	a.requests = append(a.requests, resource+": "+what)
	denied, invalid := a.denied[path], streamed && a.plain
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case denied:
		sendStatus(w, http.StatusForbidden, metav1.StatusReasonForbidden, "denied by the test")
	case invalid:
		sendStatus(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents is forbidden")
	case q.Get("watch") != "":
		from, _ := strconv.Atoi(q.Get("resourceVersion"))
		a.watch(w, r, path, from, streamed)
	default:
		a.list(w, path)
	}
}

func sendStatus(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(statusObject(code, reason, message))
}

func statusObject(code int, reason metav1.StatusReason, message string) metav1.Status {
	return metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(code), Reason: reason, Message: message}
}

// itemsLocked returns the objects of a path.
func (a *apiServer) itemsLocked(path string) (items []json.RawMessage) {
	items = []json.RawMessage{}
	for key, raw := range a.objects {
		if p, _, _ := strings.Cut(key, " "); p == path {
			items = append(items, raw)
		}
	}
	return items
}

func (a *apiServer) list(w http.ResponseWriter, path string) {
	a.mu.Lock()
	kind, api := kindAndVersion(path)
	list := map[string]any{"kind": kind + "List", "apiVersion": api, "items": a.itemsLocked(path),
		"metadata": metav1.ListMeta{ResourceVersion: strconv.Itoa(a.version)}}
	a.mu.Unlock()
	_ = json.NewEncoder(w).Encode(list)
}

func (a *apiServer) watch(w http.ResponseWriter, r *http.Request, path string, from int, streamed bool) {
	out := json.NewEncoder(w)
	send := func(typ string, object any) {
		_ = out.Encode(map[string]any{"type": typ, "object": object})
		w.(http.Flusher).Flush()
	}
	a.mu.Lock()
	cuts, gone := a.cuts, from < a.oldest && !streamed
	if streamed {
		for _, item := range a.itemsLocked(path) {
			send("ADDED", item)
		}
		from = a.version
		send("BOOKMARK", bookmarkObject(path, from, map[string]string{metav1.InitialEventsAnnotationKey: "true"}))
	}
	a.mu.Unlock()
	if gone {
		send("ERROR", statusObject(http.StatusGone, metav1.StatusReasonExpired, fmt.Sprintf("too old resource version: %d", from)))
		return
	}
	w.(http.Flusher).Flush()
	for {
		a.mu.Lock()
		changed, cut := a.changed, a.cuts != cuts
		var list []apiEvent
		for _, e := range a.events {
			if e.version > from && e.path == path && !cut {
				list = append(list, e)
				from = e.version
			}
		}
		a.mu.Unlock()
		for _, e := range list {
			send(e.typ, e.object)
		}
		if cut {
			panic(http.ErrAbortHandler)
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// The following functions build objects.

func aService(namespace, name string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.ServiceSpec{Ports: ports}}
}

// aSlice returns an IPv4 slice with one port.
func aSlice(namespace, service, name, portName string, port int32, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &portName, Port: &port}},
		Endpoints:   endpoints,
	}
}

// aPod returns a ready endpoint.
func aPod(addr string) discoveryv1.Endpoint { return podIn(addr, true, true, false) }

func podIn(addr string, ready, serving, terminating bool) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{addr}, Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating}}
}

// latestStart is how long it takes informers to become complete, at most.
const latestStart = time.Second
