package importschedule

import (
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	from := time.Date(2026, 3, 1, 12, 30, 20, 0, time.FixedZone("", 3600))
	for text, want := range map[string]string{
		"30 4 * * *":          "2026-03-02T04:30:00Z",
		"*/5 * * * *":         "2026-03-01T11:35:00Z",
		"0 7/12 * * *":        "2026-03-01T19:00:00Z",
		"@daily":              "2026-03-02T00:00:00Z",
		"@every 2h":           "2026-03-01T13:30:20Z",
		"@every 10s":          "too often",
		"TZ=Europe/Oslo @day": "UTC",
		"0 0 31 2 *":          "never comes",
		"every day":           "write five fields",
		"* * * * * *":         "write five fields",
		"":                    "write five fields",
	} {
		schedule, err := Parse(text)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = schedule.Next(from).Format(time.RFC3339)
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}
