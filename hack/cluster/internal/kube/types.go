package kube

import "time"

// Metadata is what the program reads of an object's metadata.
type Metadata struct {
	// Name is the object's name.
	Name string `json:"name"`
	// Namespace is its namespace.
	Namespace string `json:"namespace"`
	// Generation counts changes of its spec.
	Generation int64 `json:"generation"`
	// DeletionTimestamp is set when it is going away.
	DeletionTimestamp *time.Time `json:"deletionTimestamp"`
}

// Condition is one of an object's conditions.
type Condition struct {
	// Type names it.
	Type string `json:"type"`
	// Status is True, False or Unknown.
	Status string `json:"status"`
	// Reason is a word.
	Reason string `json:"reason"`
	// Message is a sentence.
	Message string `json:"message"`
	// LastHeartbeatTime is when a node's kubelet wrote it last.
	LastHeartbeatTime time.Time `json:"lastHeartbeatTime"`
}

// Node is a node's status.
type Node struct {
	// Metadata names it.
	Metadata Metadata `json:"metadata"`
	// Status is what its kubelet reports.
	Status struct {
		Conditions []Condition `json:"conditions"`
		NodeInfo   struct {
			KubeletVersion          string `json:"kubeletVersion"`
			ContainerRuntimeVersion string `json:"containerRuntimeVersion"`
		} `json:"nodeInfo"`
	} `json:"status"`
}

// Ready is the node's Ready condition.
func (n Node) Ready() Condition {
	for _, c := range n.Status.Conditions {
		if c.Type == "Ready" {
			return c
		}
	}
	return Condition{}
}

// Deployment is a deployment's progress.
type Deployment struct {
	// Metadata names it.
	Metadata Metadata `json:"metadata"`
	// Spec holds the replicas wanted.
	Spec struct {
		Replicas int `json:"replicas"`
	} `json:"spec"`
	// Status counts its pods.
	Status struct {
		ObservedGeneration int64 `json:"observedGeneration"`
		Replicas           int   `json:"replicas"`
		UpdatedReplicas    int   `json:"updatedReplicas"`
		AvailableReplicas  int   `json:"availableReplicas"`
	} `json:"status"`
}

// Available tells whether all its pods are of its last generation and available.
func (d Deployment) Available() bool {
	s := d.Status
	return s.ObservedGeneration >= d.Metadata.Generation && s.UpdatedReplicas == d.Spec.Replicas &&
		s.AvailableReplicas == d.Spec.Replicas && s.Replicas == d.Spec.Replicas
}

// APIService is whether the API server reaches who answers for a group.
type APIService struct {
	// Status says whether, and if not why.
	Status struct {
		Conditions []Condition `json:"conditions"`
	} `json:"status"`
}

// Unavailable says why the group is not answered for, "" when it is.
func (s APIService) Unavailable() string {
	for _, c := range s.Status.Conditions {
		if c.Type == "Available" && c.Status == "True" {
			return ""
		}
		if c.Type == "Available" {
			return c.Reason + ": " + c.Message
		}
	}
	return "nobody has looked yet"
}

// Pod is a pod's state.
type Pod struct {
	// Metadata names it.
	Metadata Metadata `json:"metadata"`
	// Spec is what of its containers is looked at.
	Spec struct {
		HostNetwork bool        `json:"hostNetwork"`
		Containers  []Container `json:"containers"`
	} `json:"spec"`
	// Status is what the kubelet reports.
	Status struct {
		Phase             string            `json:"phase"`
		PodIP             string            `json:"podIP"`
		Conditions        []Condition       `json:"conditions"`
		ContainerStatuses []ContainerStatus `json:"containerStatuses"`
	} `json:"status"`
}

// Container is a container's ports and readiness probe.
type Container struct {
	// Name names it.
	Name string `json:"name"`
	// Ports are its named ports.
	Ports []struct {
		Name          string `json:"name"`
		ContainerPort int    `json:"containerPort"`
	} `json:"ports"`
	// ReadinessProbe is how it is asked.
	ReadinessProbe *struct {
		HTTPGet *struct {
			Path string `json:"path"`
			Port any    `json:"port"`
		} `json:"httpGet"`
	} `json:"readinessProbe"`
}

// ContainerStatus is a container's state.
type ContainerStatus struct {
	// Name names it.
	Name string `json:"name"`
	// Ready is the result of its readiness probe.
	Ready bool `json:"ready"`
	// State says why it does not run.
	State struct {
		Waiting *struct {
			Reason  string `json:"reason"`
			Message string `json:"message"`
		} `json:"waiting"`
	} `json:"state"`
}

// List is a list of objects.
type List[T any] struct {
	// Items are the objects.
	Items []T `json:"items"`
}
