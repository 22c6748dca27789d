-- Views of a page a day. A day is made anew as a whole, whenever one of its runs was loaded.
{{ config(materialized='incremental', incremental_strategy='delete+insert', unique_key='day') }}

select collector_tstamp::date as day, page_urlpath, count(*) as views
from {{ source('shop', 'events') }}
where collector_tstamp::date = '{{ var("day") }}'
group by all
