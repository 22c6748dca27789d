"""The manifest store in a DynamoDB table: its client, the store itself, and how the table is made and checked."""
