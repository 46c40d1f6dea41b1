package version

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/spf13/cobra"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-vm/slipway/cmd/virtctl/subresource"
)

// patience is how long a verb that has failed already waits for the cluster's version.
const patience = 2 * time.Second

// Asked is a cluster that knows whether a verb asked it for anything.
type Asked interface {
	subresource.Cluster
	Asked() bool
}

// WarnWhereVerbsFail makes the verbs below root tell, when they fail, that the cluster's API is of another version than
// the program, as KubeVirt's virtctl does: that may be why.
func WarnWhereVerbsFail(root *cobra.Command, cluster Asked, program string) {
	warnWithin(patience, root, cluster, program)
}

// warnWithin is WarnWhereVerbsFail with another patience.
func warnWithin(patience time.Duration, root *cobra.Command, cluster Asked, program string) {
	if run := root.RunE; run != nil {
		root.RunE = func(cmd *cobra.Command, args []string) error {
			err := run(cmd, args)
			var ended *exec.ExitError // of a local program, which has said why
			if err == nil || errors.As(err, &ended) || !cluster.Asked() {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), patience)
			defer cancel()
			if warning := mismatch(ctx, cluster, program); warning != "" {
				fmt.Fprintln(cmd.ErrOrStderr(), warning)
			}
			return err
		}
	}
	for _, verb := range root.Commands() {
		warnWithin(patience, verb, cluster, program)
	}
}

// mismatch is the warning, "" where the versions go together, or one of them is not known: the verb's own error says
// more than that.
func mismatch(ctx context.Context, cluster subresource.Cluster, program string) string {
	own, err := utilversion.ParseSemantic(program)
	if err != nil {
		return "" // one that was built by hand
	}
	info, err := ofServer(ctx, cluster)
	if err != nil {
		return ""
	}
	server, err := utilversion.ParseSemantic(info.GitVersion)
	if err != nil || server.Major() == own.Major() && server.Minor() == own.Minor() {
		return ""
	}
	return "You are using a client virtctl version that is different from the KubeVirt version running in the cluster\n" +
		"Client Version: " + program + "\nServer Version: " + info.GitVersion + "\n"
}

// ofServer reads the version of the cluster's API.
func ofServer(ctx context.Context, cluster subresource.Cluster) (Info, error) {
	api, err := subresource.Of(cluster)
	if err != nil {
		return Info{}, err
	}
	data, err := api.GetGlobal(ctx, "version")
	if err != nil {
		return Info{}, fmt.Errorf("reading the version of the cluster's API: %w", err)
	}
	var server Info
	if err := json.Unmarshal(data, &server); err != nil {
		return Info{}, fmt.Errorf("decoding the version of the cluster's API: %w", err)
	}
	return server, nil
}
