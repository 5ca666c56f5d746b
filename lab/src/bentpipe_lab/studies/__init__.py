"""Published studies in virtual time: their campaigns are run, and their figures stand beside ours."""
