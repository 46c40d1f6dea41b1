package cache

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/slipway-vm/slipway/internal/stepcache"
)

// Formats of ls.
const (
	formatTable = ""
	formatWide  = "wide"
	formatName  = "name"
	formatJSON  = "json"
)

func newListCommand(cluster Cluster, now func() time.Time) *cobra.Command {
	format, all := "", false
	command := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "Lists the entries, the most recently used first",
		Example: `  # What the namespace "builds" keeps:
  virtctl cache ls -n builds

  # With keys, digests and the runs that made the entries:
  virtctl cache ls -n builds -o wide

  # Names only, for other programs:
  virtctl cache ls -n builds -o name`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains([]string{formatTable, formatWide, formatName, formatJSON}, format) {
				return fmt.Errorf("--output: %q is not known; write wide, name or json", format)
			}
			namespace, err := cluster.Namespace()
			if err != nil {
				return err
			}
			if all {
				namespace = ""
			}
			c, err := cluster.Client()
			if err != nil {
				return err
			}
			found, err := entries(cmd.Context(), c, namespace)
			if err != nil {
				return err
			}
			slices.SortFunc(found, func(a, b stepcache.Entry) int {
				return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), b.Used.Compare(a.Used), cmp.Compare(a.Name, b.Name))
			})
			if len(found) == 0 && format != formatJSON {
				where := "in namespace " + namespace
				if all {
					where = "in any namespace"
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "No entries %s.\n", where)
				return nil
			}
			return print(cmd.OutOrStdout(), found, format, all, now())
		},
	}
	command.Flags().StringVarP(&format, "output", "o", "", "wide for all columns, name, or json")
	command.Flags().BoolVarP(&all, "all-namespaces", "A", false, "list the entries of every namespace")
	return command
}

// listed is an entry as -o json has it.
type listed struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Step      string    `json:"step"`
	State     string    `json:"state"`
	Key       string    `json:"key"`
	Digest    string    `json:"digest"`
	Bytes     int64     `json:"bytes"`
	Filled    time.Time `json:"filled"`
	Used      time.Time `json:"used"`
	Run       string    `json:"run"`
}

// print writes the entries in the format.
func print(out io.Writer, found []stepcache.Entry, format string, all bool, now time.Time) error {
	if format == formatJSON {
		rows := make([]listed, len(found))
		for n, e := range found {
			rows[n] = listed{e.Namespace, e.Name, e.Step, state(e), string(e.Key), e.Digest, e.Size, e.Filled, e.Used, e.Run}
		}
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(rows); err != nil {
			return fmt.Errorf("writing the entries: %w", err)
		}
		return nil
	}
	table := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	space := func(s string) string {
		if all {
			return s + "\t"
		}
		return ""
	}
	if format != formatName {
		fmt.Fprintf(table, "%sNAME\tSTEP\tSTATE\tSIZE\tAGE\tUSED", space("NAMESPACE"))
		if format == formatWide {
			fmt.Fprint(table, "\tCLASS\tRUN\tDIGEST\tKEY")
		}
		fmt.Fprintln(table)
	}
	for _, e := range found {
		if format == formatName {
			fmt.Fprintln(table, space(e.Namespace)+"datavolume.cdi.kubevirt.io/"+e.Name)
			continue
		}
		size := resource.NewQuantity(e.Size, resource.BinarySI)
		fmt.Fprintf(table, "%s%s\t%s\t%s\t%s\t%s\t%s", space(e.Namespace), e.Name, e.Step, state(e), size, since(now, e.Filled), since(now, e.Used))
		if format == formatWide {
			fmt.Fprintf(table, "\t%s\t%s\t%s\t%s", e.Class, e.Run, e.Digest, e.Key)
		}
		fmt.Fprintln(table)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("writing the entries: %w", err)
	}
	return nil
}

// state is what a user sees of an entry's state.
func state(e stepcache.Entry) string {
	switch {
	case e.Going:
		return "deleting"
	case e.Abandoned:
		return "broken"
	}
	return string(e.State)
}

// since is how long ago a time was, as kubectl shows ages.
func since(now, at time.Time) string {
	if at.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(at))
}
