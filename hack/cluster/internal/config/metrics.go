package config

import (
	"fmt"

	"github.com/slipway-vm/slipway/hack/cluster/internal/layout"
)

// MetricsServer renders the metrics server, in a namespace of its own. Its kubelets are told by
// the cluster's authority, which every pod has beside its token.
func MetricsServer(image string) string {
	return fmt.Sprintf(metricsManifest, layout.MetricsNamespace, image)
}

// MetricsAPI renders what has the API server ask the metrics server. It comes after the server
// and goes before it: a group that nobody answers for keeps namespaces from being deleted.
func MetricsAPI() string {
	return fmt.Sprintf(metricsAPI, layout.MetricsAPI, layout.MetricsNamespace)
}

const metricsManifest = `apiVersion: v1
kind: Namespace
metadata: {name: %[1]s}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: metrics-server, namespace: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "slipway:metrics-server"}
rules:
- {apiGroups: [""], resources: [nodes/metrics], verbs: [get]}
- {apiGroups: [""], resources: [nodes, pods], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "slipway:metrics-server"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "slipway:metrics-server"}
subjects:
- {kind: ServiceAccount, name: metrics-server, namespace: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "slipway:metrics-server:reviews"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:auth-delegator"}
subjects:
- {kind: ServiceAccount, name: metrics-server, namespace: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: "slipway:metrics-server", namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: extension-apiserver-authentication-reader}
subjects:
- {kind: ServiceAccount, name: metrics-server, namespace: %[1]s}
---
apiVersion: v1
kind: Service
metadata: {name: metrics-server, namespace: %[1]s}
spec:
  selector: {app: metrics-server}
  ports:
  - {name: https, port: 443, targetPort: https}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: metrics-server, namespace: %[1]s}
spec:
  selector: {matchLabels: {app: metrics-server}}
  template:
    metadata: {labels: {app: metrics-server}}
    spec:
      serviceAccountName: metrics-server
      terminationGracePeriodSeconds: 5
      containers:
      - name: metrics-server
        image: %[2]s
        imagePullPolicy: IfNotPresent
        args:
        - --cert-dir=/tmp
        - --secure-port=4443
        - --kubelet-preferred-address-types=InternalIP
        - --kubelet-certificate-authority=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt
        - --metric-resolution=15s
        ports:
        - {name: https, containerPort: 4443}
        resources: {requests: {cpu: 10m, memory: 40Mi}, limits: {memory: 200Mi}}
        readinessProbe: {httpGet: {path: /readyz, port: https, scheme: HTTPS}, periodSeconds: 1}
        securityContext:
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities: {drop: [ALL]}
        volumeMounts: [{name: certificate, mountPath: /tmp}]
      volumes:
      - name: certificate
        emptyDir: {}
`

const metricsAPI = `apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: %[1]s}
spec:
  group: metrics.k8s.io
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {name: metrics-server, namespace: %[2]s}
`
